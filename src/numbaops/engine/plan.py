"""A list of steps made ready: what is constant is computed once, and what comes again with the same shapes is specialised.

A plan becomes a Python function (see :mod:`.code`); a thousand small nodes cost 50 ns a node beside the nodes' own time. When inputs of
the same shapes and types have come a few times, a variant for them is made, in which whatever depends on shapes alone is a constant,
and functions of NumPy write into inputs that nobody needs any more.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from numbaops.engine.chains import chains
from numbaops.engine.code import Code, Function, Signature
from numbaops.engine.fusion import fuse
from numbaops.engine.passes import Passes
from numbaops.engine.signature import RANDOM
from numbaops.engine.steps import Step, check_unique, invalid, located, missing_input
from numbaops.engine.values import copy_of, handed_over, mixed, nbytes_held, several, shared, unknown_output

FIRST_RUNS = 2
"""Runs before a plan becomes a function: many are for one run."""

HOT = 6
"""The later run with the same shapes and types at which a plan makes a variant for them."""

SPECIAL_BUDGET = 1 << 20
"""Bytes that values computed from shapes may hold in a variant."""

_MOST_VARIANTS = 16
_OF_SEQUENCES = ("Sequence", "Optional", "ConcatFromSequence", "SplitToSequence")
_MOST_COUNTS = 256


@dataclass
class Budget:
    """Bytes that computed constants may still hold."""

    left: int


class Plan:
    """Steps ready to run, for one set of inputs and outputs.

    Args:
        steps: the nodes in order.
        inputs: names of the values that a run is given.
        outputs: names of the values that it returns.
        constants: values that never change; those that steps compute from them are added, within ``budget``.
        budget: what values computed from constants may hold.
        graph: whether the outputs are a caller's, who may write to them, and the inputs too: then neither shares memory with anything.
        texts: inputs that are strings.
        passes: what is done to the steps.
    """

    def __init__(
        self,
        steps: Sequence[Step],
        inputs: Sequence[str],
        outputs: Sequence[str],
        constants: Mapping[str, Any],
        *,
        budget: Budget,
        graph: bool,
        texts: Iterable[str] = (),
        passes: Passes,
    ) -> None:
        self.passes = passes
        self.texts = frozenset(texts)
        self.inputs = tuple(inputs)
        self.outputs = tuple(outputs)
        self.graph = graph
        self.constants = dict(constants)
        self.folded: set[int] = set()
        self.shared: set[int] = set()
        self.steps = list(steps)
        self._check_names()
        self._rename()
        wanted = self._needed(range(len(self.steps)))
        if "fold" in passes:
            self._fold(wanted, budget)
        self.live = [position for position in self._needed(wanted) if position not in self.folded]
        self.fused: set[int] = set()
        if "fuse" in passes:
            self._fuse()
        self._prepare()
        self.last_uses = self._last_uses()
        self.roots = self._roots()
        foreign = any(self.steps[position].fast.foreign for position in self.live)
        given = set(self.inputs)
        self.computed = [name for name in self.outputs if name not in self.constants]
        self.aliased = any(self.roots[name] & given for name in self.computed)
        # A view costs 0.2 us an input: only where somebody might write to it, or hand it out.
        self.protects = graph and (foreign or self.aliased)
        takers = [step for position in self.live for step in [self.steps[position]] if step.fast.ufunc is None]
        self.as_arrays = {name for step in takers for name in (*step.inputs, *step.captured)}.union(self.outputs)
        """Values that must not be NumPy scalars, which NumPy's own functions take and give."""
        rerunnable = not any(self.steps[position].fast.given for position in self.live)
        self.candidates = self._candidates() if rerunnable and "in_place" in passes else {}
        live = [self.steps[position] for position in self.live]
        self.typed = all(step.kind == "numbaops" and not step.op_type.startswith(_OF_SEQUENCES) for step in live)
        """Whether the types of all values follow from those of the inputs."""
        self.of_shapes = [
            position
            for position in self.live
            for step in [self.steps[position]]
            if "shapes" in passes and step.kind == "numbaops" and step.op_type in ("Shape", "Size") and step.inputs[0] in given
        ]
        self.elementwise = rerunnable and "chain" in passes and any(self.steps[position].fast.elementwise for position in self.live)
        self._hot = HOT
        self._variants: dict[tuple[Any, ...], Function] = {}
        self._counts: dict[tuple[Any, ...], int] = {}
        self._plain: Function | None = None
        self._runs = 0
        self.entry: Function = self._general_entry
        """Takes a dictionary of inputs; returns None where that needs a closer look."""

    # What is known before the first run

    def _check_names(self) -> None:
        known = {"", *self.inputs, *self.constants}
        computed = check_unique(self.steps, known)
        self.missing: dict[int, str] = {}
        for position, step in enumerate(self.steps):
            for name in (*step.inputs, *step.captured):
                if name in known or computed.get(name, position) < position:
                    continue
                if name in computed:
                    other = f"the later node {self.steps[computed[name]].name!r}" if computed[name] > position else "itself"
                    raise invalid(step, f"takes {name!r}, which only {other} computes; nodes must be in order")
                self.missing.setdefault(position, name)
        for name in self.outputs:
            if name not in known and name not in computed:
                raise unknown_output(name, known.union(computed))

    def _rename(self) -> None:
        """Let takers of an Identity's output take its input, and takers of a step that does what an earlier one did that one's outputs."""
        names: dict[str, str] = {}
        firsts: dict[tuple[Any, ...], tuple[str, ...]] = {}
        for position, step in enumerate(self.steps):
            if names and not names.keys().isdisjoint((*step.inputs, *step.captured)):
                inputs, captured = (tuple(names.get(name, name) for name in some) for some in (step.inputs, step.captured))
                self.steps[position] = step = replace(step, inputs=inputs, captured=captured)
            if position in self.missing:
                continue
            if step.fast.renames and len(step.outputs) == 1:
                names[step.outputs[0]] = step.inputs[0]
            elif "share" in self.passes and step.kind == "numbaops" and step.fast.pure and step.op_type not in RANDOM:
                # equal nodes have one function
                first = firsts.setdefault((id(step.fast.function), step.inputs, step.captured, len(step.outputs)), step.outputs)
                if first is not step.outputs and all(name or not other for name, other in zip(first, step.outputs, strict=True)):
                    names.update((other, name) for name, other in zip(first, step.outputs, strict=True) if other)
                    self.shared.add(position)
        self.outputs = tuple(names.get(name, name) for name in self.outputs)

    def _needed(self, positions: Iterable[int]) -> list[int]:
        """Of the steps, those that outputs depend on."""
        wanted = {name for name in self.outputs if name not in self.constants}
        found = []
        for position in reversed(list(positions)):
            step = self.steps[position]
            if position not in self.folded and wanted.intersection(step.outputs):
                wanted.difference_update(step.outputs)
                wanted.update(name for name in (*step.inputs, *step.captured) if name and name not in self.constants)
                found.append(position)
        return found[::-1]

    def _fold(self, positions: Sequence[int], budget: Budget) -> None:
        """Run what depends on constants only, as far as the results fit into the budget; those that only such steps take are dropped."""
        takers = Counter(name for position in positions for name in {*self.steps[position].inputs, *self.steps[position].captured})
        held: dict[str, int] = {}
        for position in positions:
            step = self.steps[position]
            if not step.fast.pure or step.op_type in RANDOM or position in self.missing:
                continue
            names = (*step.inputs, *step.captured)
            if not all(name in self.constants or not name for name in names):
                continue
            # Written anew for each run: a copy of a large constant would be slower.
            if step.op_type in ("ConstantOfShape", "EyeLike") and any(name in self.outputs for name in step.outputs):
                continue
            values = [self.constants[name] if name else None for name in names]
            try:
                with np.errstate(all="ignore"):
                    results = several(step.fast.lazy(*values) if step.fast.lazy else step.fast.function(*values), len(step.outputs))
            except Exception:  # the run will say so, if it comes to this node
                continue
            sizes = [0 if step.op_type == "Constant" else nbytes_held(result) for result in results]
            if sum(sizes) > budget.left:
                continue
            budget.left -= sum(sizes)
            self.folded.add(position)
            for name, result, size in zip(step.outputs, results, sizes, strict=True):
                if name:
                    self.constants[name], held[name] = shared(result), size
            for name in set(names):
                takers[name] -= 1
                if name in held and not takers[name] and name not in self.outputs:
                    del self.constants[name]
                    budget.left += held.pop(name)

    def _fuse(self) -> None:
        """Let one step do what chains of steps do."""
        possible = [position for position in self.live if position not in self.missing]
        for last, (step, others) in fuse(self.steps, possible, self.outputs, self.constants, exact=self.passes.exact).items():
            self.steps[last] = step
            self.fused.update(others)
        self.live = [position for position in self.live if position not in self.fused]

    def _prepare(self) -> None:
        """Let steps look at their constant inputs beforehand."""
        for position in self.live:
            step = self.steps[position]
            if step.fast.prepared is not None:
                known = [None if not name else self.constants.get(name, ...) for name in (*step.inputs, *step.captured)]
                function = step.fast.prepared(*known)
                if function is not None:
                    self.steps[position] = replace(step, fast=replace(step.fast, function=function, prepared=None))

    def _last_uses(self) -> dict[str, int]:
        """The last step that takes each value; outputs are used after all steps."""
        uses: dict[str, int] = {}
        for position in self.live:
            step = self.steps[position]
            uses.update((name, position) for name in (*step.inputs, *step.captured) if name)
            for name in step.outputs:
                uses.setdefault(name, position)
        uses.update((name, len(self.steps)) for name in self.outputs)
        return uses

    def _roots(self) -> dict[str, frozenset[str]]:
        """By value, the values whose memory it may share; of one that shares none, itself."""
        roots: dict[str, frozenset[str]] = {name: frozenset((name,)) for name in self.inputs}
        roots.update((name, frozenset((name,))) for name in self.constants)
        for position in self.live:
            step = self.steps[position]
            taken: frozenset[str] = frozenset()
            if step.fast.aliases:
                taken = frozenset().union(*(roots.get(name, frozenset()) for name in (*step.inputs, *step.captured) if name))
                if step.kind != "numbaops":
                    taken |= {f" kept by {position}"}  # no value has a name with a blank in front: it would be a constant's
            for name in step.outputs:
                if name:
                    # outputs of one node may be parts of one array
                    roots[name] = taken | frozenset(step.outputs if step.fast.aliases else (name,))
        for name in self.outputs:
            roots.setdefault(name, frozenset((name,)))
        return roots

    def _candidates(self) -> dict[int, str]:
        """Steps that may write into an input, by position: a NumPy function whose input dies there, and nobody else sees its memory."""
        last_of_root: dict[str, int] = {}
        for name, roots in self.roots.items():
            for root in roots:
                last_of_root[root] = max(last_of_root.get(root, -1), self.last_uses.get(name, -1))
        fresh = {name for position in self.live if not self.steps[position].fast.aliases for name in self.steps[position].outputs if name}
        found = {}
        for position in self.live:
            step = self.steps[position]
            if step.fast.ufunc is None or len(step.outputs) != 1:
                continue
            for name in step.inputs:
                if name in fresh and last_of_root[name] == position:
                    found[position] = name
                    break
        return found

    # Running

    @property
    def special(self) -> bool:
        """Whether a variant for some shapes and types may be better."""
        return bool(self.candidates or self.of_shapes or self.elementwise)

    def __call__(self, *inputs: Any) -> Any:
        """The outputs, as a list, for the inputs in order."""
        if self._plain is None and self._runs < FIRST_RUNS:
            self._runs += 1
            return self._step_by_step(inputs)
        if not self.special:
            return self.plain(*inputs)
        signature = tuple([(value.shape, value.dtype) if type(value) is np.ndarray else None for value in inputs])
        variant = self._variants.get(signature)
        if variant is not None:
            return variant(*inputs)
        times = self._counts.get(signature, 0) + 1
        if times >= self._hot and None not in signature:
            self._counts[signature] = -self._hot * 8  # should it fail, not again soon
            return self._specialise(signature, inputs)  # type: ignore[arg-type]
        if len(self._counts) >= _MOST_COUNTS:
            self._counts.clear()
        self._counts[signature] = times
        return self.plain(*inputs)

    def called(self, *inputs: Any) -> Any:
        """The outputs, as a list, of a plan that is part of another one and called once in its run."""
        if self._plain is None and self._runs < FIRST_RUNS:
            self._runs += 1
            return self._step_by_step(inputs)
        return self.plain(*inputs)

    def _specialise(self, signature: Signature, inputs: Sequence[Any]) -> Any:
        """Run with an eye on dtypes, and keep a variant for inputs of these shapes and types."""
        plan = self._with_shapes(inputs) if self.of_shapes else self
        seen: dict[str, Any] = {}
        results = plan._step_by_step(inputs, seen)
        plan = plan._in_chains(inputs, seen)
        in_place = {
            position: name
            for position, name in plan.candidates.items()
            if name in seen and seen[name] == seen.get(plan.steps[position].outputs[0])
        }

        def restart(*again: Any) -> Any:
            found = self.plain(*again)
            # The variant was to blame: a shape or type depends on values. Never again.
            self._variants[signature] = self.plain
            self.entry = self._general_entry
            return found

        if len(self._variants) >= _MOST_VARIANTS:
            # Too many shapes to keep up with: making variants must not cost more than they save.
            self._variants.clear()
            self._counts.clear()
            self._hot *= 8

        def first(*again: Any) -> Any:  # where the entry serves, this one is never made
            self._variants[signature] = variant = Code(plan, in_place, restart).positional()
            return variant(*again)

        self._variants[signature] = first
        self.entry = Code(plan, in_place, restart).named(signature, self)
        return results

    def _step_by_step(self, inputs: Sequence[Any], seen: dict[str, Any] | None = None) -> list[Any]:
        """The outputs without a function of their own, which takes 0.1 ms and more to make: for the first runs.

        Args:
            inputs: in order.
            seen: where to note the dtype and the shape of each array, if anywhere.
        """
        values: dict[str, Any] = dict(zip(self.inputs, map(shared, inputs) if self.protects else inputs, strict=True))
        constants, last_uses = self.constants, self.last_uses
        values[""] = None
        for position in self.live:
            step = self.steps[position]
            if position in self.missing:
                raise missing_input(self.missing[position], step)
            names = (*step.inputs, *step.captured)
            taken = [values[name] if name in values else constants[name] for name in names]
            try:
                function = step.fast.function
                ufunc = step.fast.ufunc is not None and len(taken) == 2
                results = several(mixed(function, *taken) if ufunc else function(*taken), len(step.outputs))  # type: ignore[arg-type]
            except Exception as error:
                failure = located(error, step, taken[: len(step.inputs)])
                try:
                    raise failure from failure.__cause__
                finally:
                    del failure
            values.update((name, result) for name, result in zip(step.outputs, results, strict=True) if name)
            if seen is not None:
                seen.update(
                    (name, (each.dtype, each.shape)) for name, each in zip(step.outputs, results, strict=True) if type(each) is np.ndarray
                )
            for name in {*names, *step.outputs}:
                if name and last_uses.get(name) == position:
                    values.pop(name, None)
            del taken, results
        if not self.graph:
            return [values[name] if name in values else constants[name] for name in self.outputs]
        return handed_over([copy_of(constants[name]) if name in constants else values[name] for name in self.outputs])

    def _with_shapes(self, inputs: Sequence[Any]) -> Plan:
        """The plan for inputs of these shapes."""
        values = dict(zip(self.inputs, inputs, strict=True))
        known = dict(self.constants)
        for position in self.of_shapes:
            step = self.steps[position]
            known[step.outputs[0]] = shared(step.fast.function(values[step.inputs[0]]))
        rest = [
            step for position, step in enumerate(self.steps) if position not in self.of_shapes and position not in self.folded | self.fused
        ]
        budget = Budget(SPECIAL_BUDGET)
        return Plan(rest, self.inputs, self.outputs, known, budget=budget, graph=self.graph, texts=self.texts, passes=self.passes)

    def _in_chains(self, inputs: Sequence[Any], seen: Mapping[str, Any]) -> Plan:
        """The plan for inputs of these shapes and types, with each chain of element-wise steps over large arrays as one step."""
        if not self.elementwise:
            return self
        fed = {name: (value.dtype, value.shape) for name, value in zip(self.inputs, inputs, strict=True) if type(value) is np.ndarray}
        found = chains(self.steps, self.live, self.outputs, self.constants, {**seen, **fed})
        if not found:
            return self
        steps, gone = list(self.steps), {each for _, others in found.values() for each in others}
        for last, (step, _) in found.items():
            steps[last] = step
        rest = [steps[position] for position in self.live if position not in gone]
        return Plan(
            rest, self.inputs, self.outputs, self.constants, budget=Budget(0), graph=self.graph, texts=self.texts, passes=self.passes
        )

    def _general_entry(self, feeds: Any) -> Any:
        """The first entry: it makes the real one."""
        if self._runs < FIRST_RUNS and self._plain is None:
            return None
        code = Code(self, {})
        self.entry = code.named(None, self) if self.special else code.named()
        return self.entry(feeds)

    @property
    def plain(self) -> Function:
        """The function for inputs of any kind."""
        if self._plain is None:
            self._plain = Code(self, {}).positional()
        return self._plain

    def __repr__(self) -> str:
        return f"<Plan of {len(self.live)} steps: ({', '.join(self.inputs)}) -> ({', '.join(self.outputs)})>"
