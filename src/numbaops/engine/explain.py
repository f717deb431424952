"""A plan as text."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from numbaops.engine.calls import OpFunction
from numbaops.engine.plan import Plan


def explained(evaluator: Any, plan: Plan | None, indent: str = "") -> Iterator[str]:
    """The lines of :meth:`numbaops.ReferenceEvaluator.explain` for an evaluator, and for those of its bodies and functions."""
    for position, step in enumerate(evaluator.steps):
        notes = []
        if plan is not None:
            live = set(plan.live)
            if position in plan.folded:
                notes.append("folded")
            elif position in plan.shared:
                notes.append("the same as an earlier step")
            elif position in plan.fused:
                notes.append("goes into a later step")
            elif position not in live:
                notes.append("renamed" if step.fast.renames else "unused")
            else:
                if position in plan.candidates:
                    notes.append("in place")
                dying = [name for name in dict.fromkeys((*step.inputs, *step.captured)) if plan.last_uses.get(name) == position]
                if dying:
                    notes.append(f"frees {', '.join(dying)}")
        given, taken = (", ".join(names) for names in (step.outputs, step.inputs))
        yield f"{indent}{position}: {given} = {step.label}({taken}) [{step.kind}]" + "".join(f"; {note}" for note in notes)
        for name, body in getattr(step.node, "graphs", {}).items():
            if hasattr(body, "body_plan"):
                yield f"{indent}  {name}({', '.join(body.input_names_)}) -> ({', '.join(body.output_names_)})"
                yield from explained(body, body.body_plan, indent + "    ")
        if isinstance(step.node, OpFunction) and hasattr(step.node.target, "body_plan"):
            yield from explained(step.node.target, step.node.target.body_plan, indent + "    ")
