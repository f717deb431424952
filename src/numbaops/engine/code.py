"""The text of a plan's Python function: values are local variables, constants and implementations global ones.

Variables are reused, so that a value is freed at its last use. An error is traced to its node by the line it came from.
"""

from __future__ import annotations

import linecache
import weakref
from collections.abc import Callable, Mapping, Sequence
from itertools import count
from typing import TYPE_CHECKING, Any

import numpy as np

from numbaops.engine.steps import Step, located, missing_input
from numbaops.engine.values import as_value, copy_of, handed_over, mixed, several, shared

if TYPE_CHECKING:
    from numbaops.engine.plan import Plan

Function = Callable[..., Any]
Signature = tuple[tuple[tuple[int, ...], np.dtype[Any]], ...]
"""Shape and dtype of each input."""

_serial_numbers = count()


class Code:
    """The text of one variant of a plan's function.

    Args:
        plan: the plan.
        in_place: steps that write into an input, by position.
        restart: where a step writes into an input: what to call with the plan's inputs after a failure.
    """

    def __init__(self, plan: Plan, in_place: Mapping[int, str], restart: Function | None = None) -> None:
        self.plan = plan
        self.in_place = in_place
        self.restart = restart
        self.space: dict[str, Any] = {
            "ndarray": np.ndarray,
            "as_value": as_value,
            "several": several,
            "shared": shared,
            "handed_over": handed_over,
        }
        self.lines: list[str] = []
        self.step_of_line: dict[int, int] = {}
        self.variables: dict[str, str] = {name: f"a{position}" for position, name in enumerate(plan.inputs)}
        self.fresh_variables = count()
        self.free: list[str] = []
        self.names: dict[str, str] = {}  # of constants

    def argument(self, name: str) -> str:
        """The expression for a value."""
        if not name:
            return "None"
        if name in self.variables:
            return self.variables[name]
        if name not in self.plan.constants:  # after a step that never comes to its end
            return "None"
        if name not in self.names:
            self.names[name] = f"c{len(self.names)}"
            self.space[self.names[name]] = self.plan.constants[name]
        return self.names[name]

    def positional(self) -> Function:
        """The function that takes the inputs in order."""
        arguments = self._arguments()
        self.lines.append(f"def run({', '.join(arguments)}):")
        return self._function(arguments)

    def named(self, signature: Signature | None = None, otherwise: Function | None = None) -> Function:
        """The function that takes a dictionary of inputs, and returns None where that needs a closer look.

        Args:
            signature: shapes and dtypes that the function is for; None if it is for any.
            otherwise: what to call with the inputs if they are others, or in any case if there is no signature.
        """
        arguments = self._arguments()
        self.lines.append("def run(feeds):")
        self.lines.append(f"    if type(feeds) is not dict or len(feeds) != {len(arguments)}: return None")
        self.lines.append("    try:")
        self.lines.append("        pass")
        self.lines += [f"        {each} = feeds[{name!r}]" for each, name in zip(arguments, self.plan.inputs, strict=True)]
        self.lines.append("    except KeyError: return None")
        for name, each in zip(self.plan.inputs, arguments, strict=True):
            condition = f" or {each}.dtype != object" if name in self.plan.texts else ""
            self.lines.append(f"    if type({each}) is not ndarray or not {each}.dtype.isnative{condition}: return None")
        self.space["otherwise"] = otherwise
        elsewhere = f"return otherwise({', '.join(arguments)})"
        if otherwise is not None and signature is None:
            self.lines.append(f"    {elsewhere}")
            return self._compiled()
        for position, (shape, dtype) in enumerate(signature or ()):
            self.space[f"shape{position}"], self.space[f"dtype{position}"] = shape, dtype
            variable = arguments[position]
            self.lines.append(f"    if {variable}.shape != shape{position} or {variable}.dtype is not dtype{position}: {elsewhere}")
        return self._function(arguments)

    def _arguments(self) -> list[str]:
        return [f"a{position}" for position in range(len(self.plan.inputs))]

    def _function(self, arguments: Sequence[str]) -> Function:
        plan = self.plan
        if plan.protects:
            self.lines += [f"    {each} = shared({each})" for each in arguments]
        self.lines.append("    try:")
        for position in plan.live:
            self.lines.append("        " + self._statement(position))
            self.step_of_line[len(self.lines)] = position
            if position in plan.missing:  # nothing after it is reached
                break
        self.lines.append("        pass")
        self.lines.append("    except Exception as error:")
        if self.in_place:
            self.space["restart"] = self.restart
            self.lines.append(f"        return restart({', '.join(arguments)})")
        else:
            self.space["failed"] = self._failed
            self.lines.append("        failure = failed(error, locals())")
            self.lines.append("        try: raise failure from failure.__cause__")
            self.lines.append("        finally: del failure")
        self.lines.append(f"    return {self._results()}")
        return self._compiled()

    def _statement(self, position: int) -> str:
        plan = self.plan
        step = plan.steps[position]
        if position in plan.missing:
            self.space["missing_input"], self.space[f"s{position}"] = missing_input, step
            return f"raise missing_input({plan.missing[position]!r}, s{position})"
        arguments = [self.argument(name) for name in (*step.inputs, *step.captured)]
        self.space[f"f{position}"] = step.fast.function
        dying = [name for name in dict.fromkeys((*step.inputs, *step.captured)) if plan.last_uses.get(name) == position]
        freed = []
        for name in dying:
            variable = self.variables.get(name)
            # The variant that writes into inputs may start anew, so it keeps what it was given.
            if variable is not None and not (variable.startswith("a") and self.in_place):
                del self.variables[name]
                freed.append(variable)
        into = self.in_place.get(position)
        if into is not None:
            target = arguments[step.inputs.index(into)]
            # "no": a value of another type than in the run that this was made after is an error, and starts anew; 25 ns a node
            arguments += [target] if plan.typed else [f"out={target}", "casting='no'"]
        call = f"f{position}({', '.join(arguments)})"
        if step.fast.ufunc is not None and len(arguments) == 2 and into is None:  # NumPy would find a common type
            self.space["mixed"] = mixed
            call = f"{call} if {arguments[0]}.dtype is {arguments[1]}.dtype else mixed(f{position}, {', '.join(arguments)})"
        self.free += freed
        targets = []
        for name in step.outputs:
            target = self.free.pop() if self.free else f"v{next(self.fresh_variables)}"
            targets.append(target)
            if name:
                self.variables[name] = target
        if len(targets) == 1 and step.fast.single:
            text = f"{targets[0]} = {call}"
            if not step.fast.arrays and into is None and step.outputs[0] in plan.as_arrays:
                text += f"; {targets[0]} = {targets[0]} if type({targets[0]}) is ndarray else as_value({targets[0]})"
        else:
            text = f"{', '.join(targets)}{',' if len(targets) == 1 else ''} = several({call}, {len(targets)})"
        # what nobody takes, and what died and no output replaced
        for name, target in zip(step.outputs, targets, strict=True):
            if not name or plan.last_uses[name] == position:
                self.variables.pop(name, None)
                self.free.append(target)
                freed.append(target)
        emptied = [variable for variable in dict.fromkeys(freed) if variable in self.free]
        return text + "".join(f"; {variable} = None" for variable in emptied)

    def _results(self) -> str:
        plan = self.plan
        values = [self.argument(name) for name in plan.outputs]
        if not plan.graph:
            return f"[{', '.join(values)}]"
        for position, name in enumerate(plan.outputs):
            if name in plan.constants:
                self.space["copy_of"] = copy_of
                values[position] = f"copy_of({values[position]})"
        roots = [plan.roots[name] for name in plan.computed]
        apart = len(frozenset().union(*roots)) == sum(map(len, roots))
        fresh = all(root == {name} for root, name in zip(roots, plan.computed, strict=True)) and not plan.aliased
        listed = f"[{', '.join(values)}]"
        return listed if apart and fresh else f"handed_over({listed})"

    def _compiled(self) -> Function:
        self.file = f"<numbaops plan {next(_serial_numbers)}>"
        self.text = "\n".join(self.lines) + "\n"
        exec(compile(self.text, self.file, "exec"), self.space)
        function: Function = self.space["run"]
        return function

    def _failed(self, error: Exception, variables: dict[str, Any]) -> Exception:
        """The error with the node that it came from."""
        if self.file not in linecache.cache:  # for who reads tracebacks
            linecache.cache[self.file] = (len(self.text), None, self.text.splitlines(keepends=True), self.file)
            weakref.finalize(self, linecache.cache.pop, self.file, None)
        trace = error.__traceback__
        position = None if trace is None else self.step_of_line.get(trace.tb_lineno)
        if position is None:
            return error
        step = self.plan.steps[position]
        inputs = self._inputs_of(position, step, variables)
        variables.clear()  # up to Python 3.12 it is the frame's own, and would keep the error, and with it all values
        return located(error, step, inputs)

    def _inputs_of(self, position: int, step: Step, variables: Mapping[str, Any]) -> list[Any]:
        line = next(number for number, each in self.step_of_line.items() if each == position)
        text = self.lines[line - 1].partition(f"f{position}(")[2]
        arguments = text.partition(")")[0].split(", ")[: len(step.inputs)]
        return [variables.get(argument, self.space.get(argument)) for argument in arguments]
