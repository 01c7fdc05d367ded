"""The rules of a task as sentences that say what must not be done, with the word that a verdict uses for it.

Owns these sentences. Must not know how the judge finds out; docs/verdict.md and docs/gpu.md say what it does.
"""

from __future__ import annotations

from collections.abc import Sequence

from keepfast.model import Task
from keepfast.model.task import FLOORS
from keepfast.propose.quote import Quote

LANGUAGES = {
    "c": "C or C++", "triton": "Triton", "cuda": "CUDA C++", "cute": "the CuTe DSL", "torch": "PyTorch (C++ or CUDA extensions included)",
}  # fmt: skip
_STANDS = "The entry gets what it returns (tensors, numbers, tuples, dicts) in the place of the first of them, and the others not at all."


def rules(task: Task, reference: str, q: Quote) -> list[str]:
    """One sentence or two each, the most often broken first."""
    found = [
        _files(task, q),
        _contract(task, q),
        _language(task),
        _writes(task, q),
        *_exactness(task, reference, q),
        "You must not keep anything from one call to the next: contents are new for every timed call, and every result is compared. "
        "An old answer is `stateful` and counts as a cheat.",
        *_state(task),
        *_weights(task, q),
        _cases(task),
        *_reach(task, q),
        *(_gpu(task) if task.gpu else _cpu(task)),
        *_build(task, q),
        *_tunables(task, q),
        "You must not look for the judge, the answers, the ledger or keys: they are not here, and a try is written down as a cheat.",
    ]
    return [f"- {one}" for one in found]


def _files(task: Task, q: Quote) -> str:
    globs = _names(task.editable, q)
    return f"You must not change, add, rename or remove any file but those that match {globs}: anything else is `guard`."


def _contract(task: Task, q: Quote) -> str:
    entry = q.code(f"{task.entry_path}:{task.entry_symbol}")
    how = (
        "a function that is called with these arguments in order and returns its outputs, which it allocates"
        if task.entry_path.endswith(".py")
        else "a C function: these arguments, then the outputs, then the axes as int64_t, then `void *stream`; 0 means done (`keepfast.h`)"
    )
    return f"You must not change how the kernel is called: {entry} is {how}. The signature is {q.code(task.signature.text, 400)}."


def _language(task: Task) -> str:
    names = " or ".join(LANGUAGES.get(name, name) for name in task.languages)
    if not task.gpu or "torch" in task.languages:
        return f"You must not write it in anything but {names}."
    return (
        f"You must not write it in anything but {names}: at least half of the GPU time of a call has to be in your own kernels of that "
        "language, told by what is launched, not by the source (`language`)."
    )


def _writes(task: Task, q: Quote) -> str:
    written = _names([a.name for a in task.signature.written], q)
    fresh = _names([r.name for r in task.signature.outputs], q)
    parts = [f"the arguments {written}" if written else "", f"the outputs {fresh}" if fresh else ""]
    what = " and ".join(p for p in parts if p) or "what the signature marks with `!`"
    scratch = _names([a.name for a in task.arguments if a.role == "scratch"], q)
    more = f" {scratch}: scratch, whose contents mean nothing before a call." if scratch else ""
    return f"You must not write anything but {what}: inputs, gaps between tensors and other memory are watched (`out-of-bounds`).{more}"


def _exactness(task: Task, reference: str, q: Quote) -> list[str]:
    sums = f"L = {q.code(task.tolerance.reduction)}" if task.tolerance.reduction else "L the largest axis of the case"
    scale = f", all times {task.tolerance.scale:g}" if task.tolerance.scale != 1.0 else ""
    budget = (
        "You must not be less exact than the budget: of each row the RMS error at most twice the reference's own at working precision "
        "(never asked to be below 4 eps of the result's type, 2 eps for half precision and coarser; never more than 8 sqrt(L) eps, or for "
        f"these 8 eps), and no element off by more than 10 max(1, sqrt(L) / 8) times that; {sums}{scale}. Beyond is `wrong`."
    )
    found = [budget + " NaN is a mismatch. Sums in a lower precision, skipped tails and coarse exponentials are what fails here."]
    if "\ndef compare(" in "\n" + reference:
        found.append(
            "You must not take the budget for all: where results mean something together, `compare()` in reference.py has the last word."
        )
    if task.rules.precision_floor:
        found.append(_floor(task))
    if task.oracle == "frozen":
        found.append("You must not change what is computed: right means the same as the kernel before.")
    return found


def _floor(task: Task) -> str:
    floor = task.rules.precision_floor
    below = FLOORS[floor][0]
    sums = ", nor add up in float16 on the tensor cores, nor multiply 8-bit floats where no argument is one (`rule`)" if task.gpu else ""
    return (
        f"You must not compute below {floor}: numbers rounded to {below} on the way are off by more than the budget (`wrong`){sums}. "
        "Split products that make up for it are fine."
    )


def _state(task: Task) -> list[str]:
    if not task.rules.no_state:
        return []
    what = (
        "device memory that lives on after a call, or `__device__` variables: no workspace, no packed copy"
        if task.gpu
        else "writable globals, static or thread-local variables, constants aside"
    )
    return [f"You must not have anything that could keep state at all: {what} (`rule`)."]


def _reach(task: Task, q: Quote) -> list[str]:
    if not task.rules.min_axis:
        return []
    said = ", ".join(f"{q.code(axis)} = {least:,}" for axis, least in task.rules.min_axis)
    return [f"You must not be right or fast for small sizes only: cases reach {said}, and count."]


def _weights(task: Task, q: Quote) -> list[str]:
    weights = _names([a.name for a in task.arguments if a.role == "weight"], q)
    whole = _names([a.name for a in task.arguments if a.role in ("index", "meta")], q)
    tensors = {a.name for a in task.signature.args if a.kind == "tensor"}
    host = _names([a.name for a in task.arguments if a.role == "meta" and a.name in tensors], q)
    said = (
        (host, f"You must not take {host} for memory of the card: the host may read the values, which are new in every confirm."),
        (weights, f"You must not convert or pack {weights} once and keep the result: weights are drawn anew as well."),
        (whole, f"You must not assume more of {whole} than the reference says: new draws come with every evaluation."),
    )
    return [sentence for names, sentence in said if names]


def _cases(task: Task) -> str:
    untimed = "; cases that are only checked may take 25 % more" if len(task.timed) < len(task.cases) else ""
    return (
        "You must not be wrong in any case, timed or only checked, and must not make one case slower to make another faster: each may lose "
        f"at most 1 % of its time (or 3 sigma of its noise) in total, against the start and against its own best{untimed} (`case-loss`). "
        "Branches on sizes are fine, branches on contents or on being timed are not."
    )


def _cpu(task: Task) -> list[str]:
    threads = f"{task.threads} threads" if task.threads > 1 else "the one thread that calls"
    found = [
        f"You must not use more than {threads}, start processes, read files, the clock or the environment, or use a network "
        "(`cores`, `limits`).",
        "You must not leave work for after the return: the process is stopped then, and what still changes is `late`.",
    ]
    if task.rules.library_kernels == "forbidden":
        found.append("You must not call kernels of a library, be linked with one, or load one yourself (`rule`).")
    return [*found, *_prepare(task)]


def _gpu(task: Task) -> list[str]:
    return [
        "You must not do anything in a call that a CUDA graph cannot hold: no `.item()`, `.cpu()`, `.tolist()`, synchronisation, copy to "
        "or from the host, graph of your own, or work on a stream that is not joined (`cuda-graphs`, `not-a-plan`).",
        "You must not count on host code: it runs once, under capture, and what it launched is replayed without it. Choose by shape, never "
        "by clock, counter or chance (`unstable-plan`). Memory comes from torch or from the arguments.",
        "You must not do in one call the work of another: each is also run alone, in any order.",
        *_libraries(task.rules.library_kernels),
        *_own_kernels(task),
        *_prepare(task),
    ]


def _libraries(rule: str) -> list[str]:
    if rule == "allowed":
        return []
    most = (
        "at all (a fill or a cast below 1 % of GPU time is let pass)"
        if rule == "forbidden"
        else f"for more than {_percent(rule)} of GPU time"
    )
    return [f"You must not launch kernels of torch, cuBLAS, cuDNN, CUTLASS or other libraries {most} (`rule`)."]


def _percent(rule: str) -> str:
    try:
        return f"{100 * float(rule):g} %"
    except ValueError:
        return "the allowed share"


def _own_kernels(task: Task) -> list[str]:
    names = " or ".join(LANGUAGES.get(name, name) for name in task.rules.languages)
    return [f"You must not launch kernels of your own in anything but {names}, nor any that your files do not define (`rule`)."] * bool(
        names
    )


def _prepare(task: Task) -> list[str]:
    if task.rules.prepare == "forbidden":
        return ["You must not define a function `prepare` beside the entry: no work on weights outside the call (`rule`)."]
    weights = [a.name for a in task.arguments if a.role == "weight"]
    if not task.gpu or not task.entry_path.endswith(".py") or not (task.prepare or weights):
        return []
    if task.prepare:
        return [
            "You must not expect `prepare` beside the entry to be free: it is called with the arguments that its parameters name before "
            f"each call, inside the clock (`rule`). {_STANDS}"
        ]
    named = ", ".join(weights)
    return [
        f"You must not pack weights anywhere but in a function `prepare({named})` beside the entry (fewer of them, if you like). It is "
        f"called for each call's weights, outside the clock, before anything else of the call is in memory. {_STANDS}"
    ]


def _build(task: Task, q: Quote) -> list[str]:
    if task.entry_path.endswith(".py") and not task.build.sources:
        return []
    parts = [
        f"flags {_names(task.build.flags, q)}" if task.build.flags else "",
        f"libraries {_names(task.build.libs, q)}" if task.build.libs else "",
    ]
    given = "; ".join(p for p in parts if p) or "none"
    return [f"You must not need other compiler flags or libraries than these ({given}): they are the human's, and the same for all."]


def _tunables(task: Task, q: Quote) -> list[str]:
    if not task.tunables:
        return []
    return [f"You must not give a tunable of {q.code(task.tunables)} a value outside its choices or constraints (`bad-tunables`)."]


def _names(names: Sequence[str], q: Quote) -> str:
    """`a`, `b`, `c`; at most twelve, then how many more."""
    listed = list(names)
    more = f" and {len(listed) - 12} more" if len(listed) > 12 else ""
    return ", ".join(q.code(n) for n in listed[:12]) + more
