"""The second half of folding: from the outputs on, what is known and wanted is stored, within limits."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from onnx import NodeProto, TensorProto

from numbaops.rewrite.evaluation import constant_codes
from numbaops.rewrite.facts import Entry, Fact, fact_of
from numbaops.rewrite.names import Fresh, hide
from numbaops.rewrite.payloads import field_bytes
from numbaops.rewrite.places import Place, constant, tensor_of


class Store:
    """Stores values in the place of the nodes that compute them.

    Args:
        max_growth: bytes that the model may grow by.
        max_tensor: bytes that a value may take.
        facts: where to note what becomes of nodes.

    Attributes:
        growth: bytes of ``max_growth`` that are used.
        over: whether that limit has left something as it was.
    """

    def __init__(self, max_growth: int, max_tensor: int, facts: list[Fact]) -> None:
        self.max_growth, self.max_tensor, self.facts = max_growth, max_tensor, facts
        self.growth, self.over = 0, False

    def store(self, place: Place, entries: list[Entry], fixed: set[str], fresh: Fresh) -> None:
        """From the outputs on, store what is known and wanted, leave out what nobody wants, and keep the rest.

        Args:
            place: the graph, body or function.
            entries: its nodes in order.
            fixed: names that others than its nodes and outputs take.
            fresh: gives names that nothing in it has.
        """
        users: Counter[str] = Counter(name for entry in entries for name in entry.takes)
        makers = {name: entry for entry in entries for name in entry.node.output if name}
        needed = {*place.outputs, *fixed}
        kept: list[NodeProto] = []
        stored: list[TensorProto] = []
        for entry in reversed(entries):
            node = entry.node
            wanted = [position for position, name in enumerate(node.output) if name and name in needed]
            if not wanted and not self._acts(entry, place):
                self._note("removed", node, place)
                users.subtract(entry.takes)
                continue
            if entry.known is not None and wanted:
                tensors = self._stored(entry, wanted, place, needed, users, makers)
                if tensors is not None:
                    users.subtract(entry.takes)
                    for tensor in tensors:
                        place.early.add(tensor.name)
                        if self._as_node(tensor.name, place):
                            kept.append(node if _is_plain_constant(node, tensor) else constant(tensor))
                        else:
                            stored.append(tensor)
                    continue
            if entry.left is not None:
                self.facts.append(entry.left)
            needed.update(entry.takes)
            kept.append(node)
        if place.early:
            hide(kept, place.early, fresh)
        del place.owner.node[:]
        place.owner.node.extend(reversed(kept))
        gone = place.tidy(needed, stored[::-1])
        self.facts.extend(Fact("removed", "", "initializer", name, place.label) for name in gone)

    def _acts(self, entry: Entry, place: Place) -> bool:
        """Whether a node may do more than compute what nobody takes."""
        if entry.known is not None or not (unknown := place.scope.unknown(entry.node)):
            return False
        entry.left = fact_of("left", entry.node, place, reason="side effect", detail=unknown)
        return True

    def _stored(
        self,
        entry: Entry,
        wanted: Sequence[int],
        place: Place,
        needed: set[str],
        users: Counter[str],
        makers: Mapping[str, Entry],
    ) -> list[TensorProto] | None:
        """The wanted outputs of a node as tensors; None if the node stays."""
        assert entry.known is not None
        node = entry.node
        if tensor_of(node) is not None and (place.old or self._as_node(node.output[0], place)):
            return None  # as it is stored already; before IR version 4, else, it would be one more input
        if node.op_type == "Identity" and (node.input[0] in needed or node.input[0] in place.outer):
            return None  # a second copy of what is there
        sizes = [entry.known[position].nbytes for position in wanted]
        total = sum(size or 0 for size in sizes)
        if (reason := self._reason(entry, wanted, sizes, place)) is not None:
            entry.left = fact_of("left", node, place, reason=reason, size=total)
            return None
        tensors = [entry.known[position].tensor(node.output[position]) for position in wanted]
        if tensor_of(node) is None:
            grown = sum(place.stored_bytes(tensor, self._as_node(tensor.name, place)) for tensor in tensors)
            added = grown - self._freed(entry, place, needed, users, makers)
            if added > 0 and self.growth + added > self.max_growth:
                entry.left = fact_of("left", node, place, reason="max_growth", size=total)
                self.over = True
                return None
            self.growth += max(0, added)
        self._note("folded", node, place, size=total)
        return tensors

    def _reason(self, entry: Entry, wanted: Sequence[int], sizes: Sequence[int | None], place: Place) -> str | None:
        """Why the outputs of a node cannot be stored, or should not."""
        assert entry.known is not None
        if None in sizes:
            return "no tensor"
        if any(entry.known[position].made for position in wanted):
            return "smaller as it is"
        if tensor_of(entry.node) is None and max(size or 0 for size in sizes) > self.max_tensor:
            return "max_tensor"
        as_nodes = any(self._as_node(entry.node.output[position], place) for position in wanted)
        opset = place.scope.opsets.get("")
        codes = frozenset() if opset is None else constant_codes(opset)
        if as_nodes and not all(entry.known[position].code in codes for position in wanted):
            return "no Constant"
        return None

    def _freed(self, entry: Entry, place: Place, needed: set[str], users: Mapping[str, int], makers: Mapping[str, Entry]) -> int:
        """Bytes that go with a node: its own, and those of what only it, and what goes with it, takes."""
        gone: Counter[str] = Counter()
        todo, total = [entry], 0
        while todo:
            one = todo.pop()
            total += field_bytes(one.node)
            for name in one.takes:
                gone[name] += 1
                if name in needed or gone[name] < users[name]:
                    continue
                maker = makers.get(name)
                if maker is None:
                    known = place.values.get(name)
                    if known is not None:
                        total += known.cost if known.stored is None else place.stored_bytes(known.stored)
                elif all(not output or (output not in needed and gone[output] == users[output]) for output in maker.node.output):
                    todo.append(maker)
        return total

    @staticmethod
    def _as_node(name: str, place: Place) -> bool:
        """Whether what is stored by a name is a Constant."""
        return not place.takes_initializers or name in place.outputs

    def _note(self, what: str, node: NodeProto, place: Place, *, size: int = 0) -> None:
        self.facts.append(fact_of(what, node, place, size=size))


def _is_plain_constant(node: NodeProto, tensor: TensorProto) -> bool:
    return tensor_of(node) is not None and node.output[0] == tensor.name
