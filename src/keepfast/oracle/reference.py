"""The human's reference.py: loaded, called, and held to the signature. Sentences for everything it may not return.

Never casts. Must not know layouts, memory or messages.
"""

from __future__ import annotations

import hashlib
import numbers
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from keepfast.errors import TaskError
from keepfast.model import Arg, Case, Task
from keepfast.oracle import tensors
from keepfast.task.reference import CaseView, load_module

DOCS = "see docs/tasks.md"
Values = dict[str, Any]  # every argument in schema order: a tensor, a scalar or None
Results = dict[str, torch.Tensor]  # written arguments, then outputs


def seed_of(words: Sequence[int]) -> int:
    """64 bits for torch's generator out of a draw's 128, all of which count."""
    data = b"".join(int(word).to_bytes(8, "little") for word in words)
    return int.from_bytes(hashlib.sha256(data).digest()[:8], "little")


class Reference:
    """Calls the human's functions. `at` says which case they were called for last."""

    def __init__(self, task: Task, device: str) -> None:
        self.task, self.device, self.at = task, torch.device(device), ""
        self.module = load_module(Path(task.folder) / "reference.py")

    @property
    def has_compare(self) -> bool:
        return hasattr(self.module, "compare")

    def where(self, name: str = "") -> str:
        case = f", case {self.at}" if self.at else ""
        return f"reference.py{case}" + (f", `{name}`" if name else "")

    # ---------------------------------------------------------------------------------------- inputs

    def inputs(self, case: Case, seed: Sequence[int], meta: Sequence[int] = ()) -> Values:
        """Call inputs(case, rng) and hold it to the signature: names, order, kinds, declared dtypes, device. `meta`: seed of what the
        host may read; without one it is drawn with the rest."""
        self.at = case.name
        maker = self._function("inputs", "inputs(case, rng)")
        known = self._meta(case, meta or seed)
        number = seed_of(seed)
        torch.manual_seed(number)  # so that a draw which forgets to pass `generator=rng` can be drawn again
        made = maker(CaseView(case), torch.Generator(self.device).manual_seed(number), **known)
        names = [a.name for a in self.task.signature.args]
        if not isinstance(made, Mapping):
            what, step = f"inputs() returned a {type(made).__name__}", f"return a dict with {', '.join(names)}"
            raise TaskError(what, where=self.where(), next_step=step)
        values = {str(name): value for name, value in made.items()}
        if twice := sorted(known.keys() & values.keys()):
            step = "let inputs() return the others; it is given these by name"
            raise TaskError(f"inputs() returned {twice}, which meta() draws", where=self.where(), next_step=step)
        values |= {name: value.to(self.device) for name, value in known.items()}
        for arg in self.task.signature.args:
            if arg.name not in values and arg.has_default:
                values[arg.name] = arg.default
        if sorted(values) != sorted(names):
            what = f"inputs() returned {sorted(values)}, the signature has {sorted(names)}"
            raise TaskError(what, where=self.where(), next_step="let inputs() return exactly the arguments, by name")
        return {arg.name: self._argument(arg, values[arg.name]) for arg in self.task.signature.args}

    def _meta(self, case: Case, seed: Sequence[int]) -> dict[str, torch.Tensor]:
        """What meta(case, rng) draws, on the CPU: the tensors whose values the host may read. Nothing where the task has none."""
        names = [a.name for a in self.task.signature.args if a.kind == "tensor" and self.task.argument(a.name).role == "meta"]
        if not names:
            return {}
        made = self._function("meta", "meta(case, rng)")(CaseView(case), torch.Generator("cpu").manual_seed(seed_of(seed)))
        if not isinstance(made, Mapping) or sorted(made) != sorted(names):
            said = sorted(made) if isinstance(made, Mapping) else f"a {type(made).__name__}"
            step = f"return a dict with {', '.join(names)}: every tensor of role `meta`"
            raise TaskError(f"meta() returned {said}", where=self.where(), next_step=step)
        for name, value in made.items():
            if not isinstance(value, torch.Tensor) or value.device.type != "cpu" or value.dim() > 1:
                step = "return tensors on the CPU, of one dimension or none"
                raise TaskError("is no plain list of values that the host can read", where=self.where(name), next_step=step)
        return dict(made)

    def _function(self, name: str, call: str) -> Any:
        found = getattr(self.module, name, None)
        if found is None:
            raise TaskError(f"reference.py has no {call}", where="reference.py", next_step=DOCS)
        return found

    def _argument(self, arg: Arg, value: Any) -> Any:
        if value is None and arg.optional:
            return None
        declared = self.task.argument(arg.name).dtype
        why = self._unfit(value, declared) if arg.kind == "tensor" and value is not None else _unfit_scalar(arg, value)
        if why:
            raise TaskError(why[0], where=self.where(arg.name), next_step=why[1])
        return value.detach() if arg.kind == "tensor" else KINDS[arg.kind][1](value)

    def _unfit(self, value: Any, declared: str) -> tuple[str, str] | None:
        """What is wrong with a tensor, and what to do about it."""
        if type(value) is not torch.Tensor or value.layout is not torch.strided or value.is_conj() or value.is_neg():
            plain = isinstance(value, torch.Tensor) and type(value) is torch.Tensor
            kind = "tensor that is not plain memory" if plain else type(value).__name__
            return f"is a {kind}, not a torch.Tensor", "return a plain, strided torch.Tensor on rng.device"
        if value.device != self.device:
            return f"is on {value.device}, rng is on {self.device}", "make it there: device=rng.device"
        name = tensors.name_of(value.dtype)
        if not name:
            return f"has dtype {value.dtype}, which keepfast cannot hold", "see docs/tasks.md, element types"
        if declared and name != declared:
            return f"has dtype {name}, [arguments] says {declared}; keepfast never casts", f"draw it as {declared}, or change [arguments]"
        return None

    # ---------------------------------------------------------------------------------------- results

    def working(self, values: Values) -> Results:
        """What reference() says when called as it is, in the dtypes and shapes that results must have."""
        found = self._called({k: tensors.copy(v) for k, v in values.items()})
        for name, tensor in found.items():
            self._hold(name, tensor, values.get(name))
        return found

    def both(self, values: Values) -> tuple[Results, Results]:
        """Results at working precision and in float64. Floats of 8 bits may stay what they are: rounding to them is the task.
        A frozen oracle is its own truth: what it says is widened."""
        working = self.working(values)
        if self.task.oracle == "frozen":
            return working, {k: v if tensors.small(v.dtype) else v.double() if v.is_floating_point() else v for k, v in working.items()}
        exact = self._called({k: tensors.wide(v) for k, v in values.items()})
        for name, tensor in exact.items():
            self._hold_exact(name, tensor, working[name])
        return working, exact

    def _called(self, values: Values) -> Results:
        """Call reference() and name what it returned: written arguments first, then outputs."""
        raw = self._function("reference", "reference(...)")(**values)
        parts = [] if raw is None else list(raw) if isinstance(raw, tuple | list) else [raw]
        written, outputs = [a.name for a in self.task.signature.written], [r.name for r in self.task.signature.outputs]
        kept = [name for name in written if self.compared(name, values)]
        if len(parts) == len(outputs) and kept:
            parts = [values[name] for name in kept] + parts
        elif len(parts) == len(written) + len(outputs):
            parts = [part for i, part in enumerate(parts) if i >= len(written) or written[i] in kept]
        if len(parts) != len(kept) + len(outputs):
            raise TaskError(
                f"reference() returned {len(parts)} tensors, the signature has {len(kept)} written arguments and {len(outputs)} outputs",
                where=self.where(),
                next_step="return the new values of the `!` arguments in schema order, then the outputs",
            )
        return {name: self._tensor(name, part) for name, part in zip(kept + outputs, parts, strict=True)}

    def compared(self, name: str, values: Values) -> bool:
        """Whether a written argument is a result: not when it was not given, nor what is left in scratch memory."""
        return values[name] is not None and self.task.argument(name).role != "scratch"

    def _tensor(self, name: str, part: Any) -> torch.Tensor:
        if not isinstance(part, torch.Tensor):
            what = f"reference() returned a {type(part).__name__}, not a tensor"
            raise TaskError(what, where=self.where(name), next_step="return torch tensors, one for each result")
        if part.device != self.device:
            what = f"reference() returned a tensor on {part.device}, its inputs are on {self.device}"
            raise TaskError(what, where=self.where(name), next_step="compute on the device of the inputs")
        return part.detach()

    def _hold(self, name: str, tensor: torch.Tensor, given: torch.Tensor | None) -> None:
        found, declared = tensors.name_of(tensor.dtype), self.task.argument(name).dtype
        if not found:
            what = f"reference() returned {tensor.dtype}, which keepfast cannot hold"
            raise TaskError(what, where=self.where(name), next_step="see docs/tasks.md, element types")
        if given is not None and (given.shape, given.dtype) != (tensor.shape, tensor.dtype):
            what = f"is {_said(given)}, reference() returned {_said(tensor)}"
            step = "return the new values of a written argument in its own shape and dtype"
            raise TaskError(what, where=self.where(name), next_step=step)
        if declared and found != declared:
            what = f"reference() returned {found}, [arguments] says {declared}; keepfast never casts"
            raise TaskError(what, where=self.where(name), next_step="compute in the dtype of the arguments, or change [arguments]")

    def _hold_exact(self, name: str, exact: torch.Tensor, working: torch.Tensor) -> None:
        if exact.shape != working.shape:
            what = f"reference() returned {_said(working)}, and {_said(exact)} when it was given float64"
            raise TaskError(what, where=self.where(name), next_step="shapes must not depend on the dtype of the arguments")
        if not working.dtype.is_floating_point or exact.dtype == torch.float64:
            return
        if tensors.small(working.dtype) and exact.dtype == working.dtype:
            return
        raise TaskError(
            f"reference() was given float64 and returned {tensors.name_of(exact.dtype) or exact.dtype}",
            where=self.where(name),
            next_step="compute in the dtype of the arguments: no .float() or .to(torch.float32) that stays",
        )

    # ---------------------------------------------------------------------------------------- optional functions

    def limit(self, case: Case, values: Values) -> tuple[float, float]:
        """The task's limit(case, inputs) -> {"bytes": ..., "flops": ...}; 0 for what it does not say."""
        if not hasattr(self.module, "limit"):
            return 0.0, 0.0
        found = self.module.limit(CaseView(case), dict(values))
        if not isinstance(found, Mapping):
            what = f"limit() returned a {type(found).__name__}"
            raise TaskError(what, where=self.where(), next_step='return {"bytes": ..., "flops": ...}, either or both')
        return float(found.get("bytes", 0.0)), float(found.get("flops", 0.0))

    def compare(self, case: Case, values: Values, got: Results, exact: Results) -> str:
        """The task's own compare(case, inputs, got, expected): "" or what is wrong."""
        lent = [{k: tensors.copy(v) for k, v in each.items()} for each in (values, got, exact)]
        said = self.module.compare(CaseView(case), *lent)
        if said is None or not isinstance(said, str):  # a truth value, Python's or torch's
            return "" if said is None or bool(said) else "compare() said no"
        return said or "compare() said no"


def _said(tensor: torch.Tensor) -> str:
    return f"{tensors.name_of(tensor.dtype) or tensor.dtype}{list(tensor.shape)}"


KINDS: dict[str, tuple[Any, Any]] = {  # what inputs() may return, and what it becomes
    "int": (numbers.Integral, int),
    "float": (numbers.Real, float),
    "bool": (bool, bool),
    "str": (str, str),
}


def _unfit_scalar(arg: Arg, value: Any) -> tuple[str, str] | None:
    """What is wrong with an argument's value that is no tensor, and what to do about it."""
    if value is None:
        return "is None, but the signature does not say `?`", f"return a value, or make it optional: `{arg.kind.title()}? {arg.name}`"
    if not isinstance(value, KINDS[arg.kind][0]):
        return f"is a {type(value).__name__}, the signature says {arg.kind}", f"return a Python {arg.kind}"
    if arg.kind == "int" and not -(2**63) <= value < 2**63:
        return f"is {value}, which does not fit in 64 bits", "draw a smaller number"
    return None
