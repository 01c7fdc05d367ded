"""What a Python function is called with: for each parameter an argument of the signature, a size, a constant, or its default.

Owns the signature of a function that has none, and which of the values that it returns are outputs. Must not know files.
"""

from __future__ import annotations

from msgspec import Struct

from keepfast.errors import UsageError, nearest
from keepfast.model import Signature
from keepfast.task import given, torch_texts
from keepfast.task.found import Returned
from keepfast.task.given import Cases, Drawn, Fixed, Given, Listed, Named
from keepfast.task.pysource import Function, Parameter
from keepfast.task.signature import parse


class Bound(Struct, frozen=True):
    """`call`: its arguments, as text. `picked`: which of the returned values are outputs, None for all."""

    signature: Signature
    drawn: dict[str, Given]
    call: tuple[str, ...]
    picked: tuple[int, ...] | None


class Binder:
    """Gives every parameter what it is called with: an argument of the signature, a size, a constant, or its default."""

    def __init__(self, function: Function, said: dict[str, Given], cases: Cases, seen: tuple[str, Returned | None]) -> None:
        """`seen`: the file, and what calls were seen to give back."""
        self.function, self.said, self.cases = function, said, cases
        self.where, self.seen = f"{seen[0]}:{function.line}", seen[1]
        names = [p.name for p in function.parameters]
        stray = next((n for n in said if n not in names), "")
        if stray:
            step = f"Its parameters: {', '.join(names) or 'none'}"
            raise UsageError(f"`{function.name}` has no parameter `{stray}`.{nearest(stray, names)}", where="--arg", next_step=step)

    def bound(self, text: str) -> Bound:
        signature = parse(text) if text else None
        if signature is not None:
            self._known(signature)
        drawn = self._drawn(signature)
        signature = signature or parse(self._signature(drawn))
        return Bound(signature, drawn, self._call(signature, drawn), self._picked(signature))

    def _known(self, signature: Signature) -> None:
        names = [p.name for p in self.function.parameters]
        for arg in signature.args:
            if arg.name not in names and not self.function.any_keyword:
                step = f"Its parameters: {', '.join(names) or 'none'}"
                what = f"`{self.function.name}` has no parameter `{arg.name}`.{nearest(arg.name, names)}"
                raise UsageError(what, where="--signature", next_step=step)

    def _drawn(self, signature: Signature | None) -> dict[str, Given]:
        """What inputs() makes, in the order of the signature."""
        if signature is not None:
            return {a.name: self._of_signature(a.name, a.kind, a.default, plain=a.has_default or a.optional) for a in signature.args}
        found = {p.name: self._of_parameter(p) for p in self.function.parameters}
        return {name: one for name, one in found.items() if one is not None}

    def _of_signature(self, name: str, kind: str, default: given.Scalar, *, plain: bool) -> Given:
        mine = self.said.get(name)
        if mine is not None:
            return mine
        if kind == "tensor" and not plain:
            return given.plain(name, self.cases)
        parameter = next((p for p in self.function.parameters if p.name == name), Parameter(name))
        if not plain and not parameter.literal:
            raise self._unsaid(name)
        return Fixed(default if plain else parameter.default)

    def _of_parameter(self, parameter: Parameter) -> Given | None:
        """None for what is no argument of the task."""
        mine, name = self.said.get(parameter.name), parameter.name
        if isinstance(mine, Drawn) or (isinstance(mine, Fixed) and mine.value is not None):
            return mine
        if mine is not None or name in self.cases.axes:
            return None  # a constant, or a size
        if parameter.kind == "tensor" and not parameter.has_default:
            return given.plain(name, self.cases)
        if parameter.kind in ("int", "float", "bool", "str") and parameter.literal and parameter.default is not None:
            return Fixed(parameter.default)
        if parameter.has_default:
            return None
        if parameter.kind == "":
            return given.plain(name, self.cases)
        raise self._unsaid(name)

    def _unsaid(self, name: str) -> UsageError:
        return UsageError(f"`{name}` has no default, and its type says no tensor", where=self.where, next_step=f'--arg "{name}=VALUE"')

    def _signature(self, drawn: dict[str, Given]) -> str:
        letters = iter("abcdefghijklmnopqrstuvwxyz")
        parts = []
        for name, one in drawn.items():
            if isinstance(one, Drawn):
                parts.append(f"Tensor({next(letters)}!) {name}" if one.written else f"Tensor {name}")
            elif isinstance(one, Fixed):
                parts.append(self._scalar(name, one.value))
        return f"{self.function.name}({', '.join(parts)}) -> {self._outputs()}"

    def _scalar(self, name: str, value: given.Scalar) -> str:
        kind = next((p.kind for p in self.function.parameters if p.name == name), "")
        if kind == "float" and isinstance(value, int) and not isinstance(value, bool):
            return f"float {name}={float(value)!r}"
        return f"{type(value).__name__} {name}={torch_texts.default(value)}"

    def _outputs(self) -> str:
        returned, back = self.function.returned, self.function.back
        if self.seen is not None:
            returned, back = tuple("" if i in self.seen.fresh else "back" for i in range(self.seen.count)), ("back",)
        if returned is None:
            what = f"nobody can tell from its text how many tensors `{self.function.name}` returns"
            raise UsageError(what, where=self.where, next_step='--signature "NAME(Tensor x, ...) -> (Tensor y, Tensor z)"')
        fresh = [name for name in returned if not name or name not in back]
        if not fresh and not any(isinstance(o, Drawn) and o.written for o in self.said.values()):
            what = f"`{self.function.name}` returns no tensor of its own: say what it writes"
            raise UsageError(what, where=self.where, next_step='--arg "y=bf16[m,n]!"')
        names = [p.name for p in self.function.parameters]
        plain = len(fresh) != len(set(fresh)) or any(not n or n in names or n in self.cases.axes for n in fresh)
        outputs = ["Tensor" if plain or len(fresh) == 1 else f"Tensor {name}" for name in fresh]
        return outputs[0] if len(outputs) == 1 else f"({', '.join(outputs)})"

    # ---------------------------------------------------------------------------------------- the call

    def _call(self, signature: Signature, drawn: dict[str, Given]) -> tuple[str, ...]:
        sizes, words, positional = given.places(drawn, self.cases.axes), [], True
        known = {a.name for a in signature.args}
        for parameter in self.function.parameters:
            value = self._passed(parameter, known, sizes)
            positional = positional and value is not None and not parameter.keyword
            if value is None:
                continue
            if parameter.positional and not positional:
                what = f"`{parameter.name}` can only be given by its place, and one before it has nothing to be given"
                raise UsageError(what, where=self.where, next_step=given.FORM)
            words.append(value if positional else f"{parameter.name}={value}")
        names = {p.name for p in self.function.parameters}
        words += [f"{a.name}={a.name}" for a in signature.args if a.name not in names]
        return tuple(words)

    def _passed(self, parameter: Parameter, known: set[str], sizes: dict[str, str]) -> str | None:
        name, mine = parameter.name, self.said.get(parameter.name)
        if name in known:
            return name
        if isinstance(mine, Listed):
            return f"[{', '.join(given.shown(item, sizes, f'`{name}`') for item in mine.items)}]"
        if isinstance(mine, Named):
            return mine.text
        if isinstance(mine, Fixed):
            return torch_texts.python(mine.value)
        if name in self.cases.axes:
            return given.shown(name, sizes, f"`{name}`")
        if parameter.positional and parameter.literal:
            return torch_texts.python(parameter.default)  # said, so that those after it have their places
        if parameter.has_default:
            return None
        raise self._unsaid(name)

    def _picked(self, signature: Signature) -> tuple[int, ...] | None:
        """Which of the returned values are the outputs."""
        returned, outputs = self.function.returned, tuple(r.name for r in signature.outputs)
        if self.seen is not None and len(self.seen.fresh) == len(outputs):
            return None if self.seen.count == len(outputs) else self.seen.fresh
        if returned is None or (len(returned) == len(outputs) and not self.function.back):
            return None
        if outputs and all(name in returned for name in outputs):
            return tuple(returned.index(name) for name in outputs)
        fresh = tuple(i for i, name in enumerate(returned) if not name or name not in self.function.back)
        if len(fresh) == len(outputs):
            return fresh
        names = ", ".join(name or "..." for name in returned)
        step = "Name those that are outputs as the function does: -> (Tensor y, Tensor z)"
        what = f"`{self.function.name}` returns {len(returned)} values ({names}), the signature has {len(outputs)} outputs"
        raise UsageError(what, where="--signature", next_step=step)
