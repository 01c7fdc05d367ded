"""Where the kernels of a plan come from: the candidate's own Triton, CuTe or CUDA, or a library. By their names and their GPU time.

Owns the table of names, and the two judgements on it: was the language asked for used, and were library kernels used that the task
forbids. A kernel is the candidate's own when its tree defines it, whatever it is called; names that only a library gives win over that.
`forged` are names that were found to be lies (`recompiled`). Must not know how times were measured, or what an image says.
"""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Protocol

from msgspec import Struct

from keepfast.gpu.messages import KernelFacts
from keepfast.judge.endings import MAX_DETAIL, Failure
from keepfast.model import Fact, File, Reason, Rules

HALF = 0.5  # of GPU time that must be in the language asked for
FORBIDDEN = 0.01  # of GPU time that forbidden library kernels may still take: a fill, a cast
SOURCE_BYTES = 4 << 20  # of one file that is searched for kernels
LONG = 60  # characters of a name in a sentence
MOST = 4096  # characters of a name that are looked at

LIBRARIES = ("inductor", "aten", "cublas", "cudnn", "cutlass-library", "flash", "nccl", "other-library")
OWN = {"triton": "triton", "cute": "cute", "cuda": "own"}  # language -> origin of its kernels
WORDS = {
    "triton": "Triton", "cute": "CuTe DSL", "own": "CUDA C++", "inductor": "torch.compile (Inductor)", "aten": "PyTorch (ATen)",
    "cublas": "cuBLAS", "cudnn": "cuDNN", "cutlass-library": "CUTLASS", "flash": "FlashAttention, FlashInfer or the like", "nccl": "NCCL",
    "other-library": "a kernel library", "unknown": "kernels that its files do not define",
    "forged": "kernels that have the name of a Triton kernel, and that Triton did not compile",
}  # fmt: skip
_CHIP = "(?:maxwell|pascal|volta|turing|ampere|ada|hopper|blackwell)"
# Names that nobody gives by accident. First match counts; `_path` of the name is what is searched.
CERTAIN = (
    ("inductor", r"^triton_$|(?:^|_)triton_(?:for|per|poi|red|spl|tem|unk)_(?:fused\w*|_?\d+)$"),
    ("aten", r"^(?:at|c10|caffe2|at_cuda_detail|torch)::"),
    ("cudnn", rf"^cudnn|^sm\d+_xmma_\w+_cudnn$|^{_CHIP}_\w*cudnn_\w*\d+x\d+"),
    ("cublas", r"^nvjet_|^cublas|^sm\d+_xmma_\w+_cublas$|^internal::gemvx::|^gemv(?:2[NT]|NSP|x)_\w*kernel|^gemm(?:SN_\w+|k1)_kernel"),
    ("cublas", rf"^{_CHIP}_\w*gemm_\w*\d+x\d+\w*_[nt][nt](?:_v\d+)?$"),
    ("nccl", r"^nccl(?:Dev)?Kernel"),
)
# Names that also an own kernel may have, when it instantiates the library's templates or says what it does.
LIKELY = (
    ("aten", r"(?:^|::)(?:softmax_warp_(?:for|back)ward|cunn_SoftMax\w*)$|^cub::|^thrust::"),
    ("flash", r"^(?:pytorch_)?flash(?:_attn\w*|infer)?::|(?:^|::)flash_[fb]wd\w*|^fmha\w*|^(?:Batch|Single)(?:Decode|Prefill)With"),
    ("flash", r"^cutlass::device_kernel<(?:flash|flashinfer)::|^kernel_cutlass_kernel_(?:flash_attn|flashinfer)"),
    ("other-library", r"^kernel_cutlass_kernel_quack|^(?:vllm|sgl|sglang|tensorrt_llm|moe|deep_gemm|marlin\w*)::"),
    ("cutlass-library", r"^cutlass(?:_\d+|3x)?_|^cutlass::"),
    ("cudnn", r"convolve_\w*gemm|^sm\d+_xmma_(?:fprop|dgrad|wgrad)"),
)


class Tree(Protocol):
    """What was captured, as `builder.BuiltTree` is one."""

    @property
    def files(self) -> tuple[File, ...]: ...

    @property
    def library(self) -> Path | None: ...


class Share(Struct, frozen=True):
    """Kernels of one origin: their part of the GPU time, launches in a call, and (name, part of the time) of each, largest first."""

    origin: str
    time: float
    launches: int
    kernels: tuple[tuple[str, float], ...]

    def names(self, most: int = 2) -> str:
        return ", ".join(f"`{short(name)}`" for name, _ in self.kernels[:most]) + (", ..." if len(self.kernels) > most else "")

    def __str__(self) -> str:
        return f"{percent(self.time)} of GPU time is in {WORDS[self.origin]} ({self.names()})"


# --------------------------------------------------------------------------------------------- judgements


def judge_language(
    languages: Sequence[str], tree: Tree, kernels: Sequence[KernelFacts], forged: Collection[str] = ()
) -> Failure | tuple[Fact, ...]:
    """At least HALF of the GPU time must be in the candidate's own kernels of one of the languages. `torch` is any PyTorch."""
    found = shares(kernels, tree, forged)
    if "torch" in languages or any(_of(found, language) >= HALF for language in languages):
        return _facts(found)
    return Failure(Reason.LANGUAGE, _refusal(languages, tree, found)[:MAX_DETAIL])


def judge_rules(rules: Rules, kernels: Sequence[KernelFacts], tree: Tree) -> Failure | tuple[Fact, ...]:
    """Library kernels together take no more GPU time than `library_kernels` says."""
    libraries = [s for s in shares(kernels, tree) if s.origin in LIBRARIES]
    time = sum(s.time for s in libraries)
    rule = rules.library_kernels
    most = {"allowed": 1.0, "forbidden": FORBIDDEN}.get(rule)
    most = float(rule) if most is None else most
    if time > most + 1e-9:
        allowed = "the task forbids them" if rule == "forbidden" else f"the task allows {percent(most)}"
        names = "; ".join(f"{WORDS[s.origin]} {percent(s.time)}: {s.names()}" for s in libraries)
        return Failure(Reason.RULE, f"library kernels have {percent(time)} of GPU time, {allowed}: {names}"[:MAX_DETAIL])
    return (Fact("library kernels", f"{percent(time)} of GPU time"),) if libraries else ()


def _of(found: Sequence[Share], language: str) -> float:
    return sum(s.time for s in found if s.origin == OWN.get(language))


def _facts(found: Sequence[Share]) -> tuple[Fact, ...]:
    total = sum(s.launches for s in found)
    said = {s.origin: f"{percent(s.time)} of GPU time, {s.launches} of {total} launches: {s.names(4)}" for s in found}
    return tuple(Fact(f"from {WORDS[origin]}", text) for origin, text in said.items())


def _refusal(languages: Sequence[str], tree: Tree, found: Sequence[Share]) -> str:
    """One sentence: a fig leaf, another language, declared and not launched, a library, in this order."""
    asked, wanted = " or ".join(languages), {OWN.get(language) for language in languages}
    others = [s for s in found if s.origin not in wanted]
    if not others:
        return f"asked for {asked}, and it launches no kernel at all"
    if leaf := next((s for s in found if s.origin in wanted), None):
        return f"its {asked} kernels ({leaf.names()}) have {percent(leaf.time)} of GPU time, half is the least; {others[0]}"
    if others[0].origin == "forged":
        return f"asked for {asked}, and {others[0]}"
    if others[0].origin in OWN.values():
        return f"asked for {asked}, wrote {WORDS[others[0].origin]}: {others[0].names()} has {percent(others[0].time)} of GPU time"
    declared = sorted(jitted(tree.files)) if "triton" in languages else []
    if taken := [name for name, _ in others[0].kernels if name in declared]:
        return f"`{short(taken[0])}` is a name that torch.compile gives; call the kernel something else if it is your own"
    if declared:
        return f"declares the Triton kernel `{short(declared[0])}` and never launches one of its own: {others[0]}"
    return f"asked for {asked}, and none of it was launched: {others[0]}"


# --------------------------------------------------------------------------------------------- origins


def shares(kernels: Sequence[KernelFacts], tree: Tree, forged: Collection[str] = ()) -> tuple[Share, ...]:
    """By origin, the largest share of GPU time first. Without a profile launches stand for time."""
    own = Authored(tree, forged)
    weights = [k.share for k in kernels]
    if sum(weights) <= 0:
        weights = [float(k.launches) for k in kernels]
    total = sum(weights) or 1.0
    groups: dict[str, list[tuple[KernelFacts, float]]] = {}
    for kernel, weight in zip(kernels, weights, strict=True):
        groups.setdefault(own.origin(kernel.name), []).append((kernel, weight / total))
    made = [_share(origin, group) for origin, group in groups.items()]
    return tuple(sorted(made, key=lambda s: -s.time))


def _share(origin: str, group: list[tuple[KernelFacts, float]]) -> Share:
    ordered = sorted(group, key=lambda pair: -pair[1])
    return Share(origin, sum(t for _, t in group), sum(k.launches for k, _ in group), tuple((k.name, t) for k, t in ordered))


class Authored:
    """What a tree defines: Triton functions in its files, kernels in its library. `forged`: names that are not Triton's after all."""

    def __init__(self, tree: Tree, forged: Collection[str] = ()) -> None:
        self.jitted, self.forged = jitted(tree.files), frozenset(forged)
        self.library = tree.library.read_bytes() if tree.library else b""

    def origin(self, name: str) -> str:
        if certain := _known(name, CERTAIN):
            return certain
        if name in self.jitted:
            return "forged" if name in self.forged else "triton"
        # The names of all kernels of a shared object are in it: in the table that tells the runtime about them, and in its images.
        if self.library and b"\0" + name.encode() + b"\0" in self.library:
            return "own"
        if likely := _known(name, LIKELY):
            return likely
        return "cute" if name.startswith("kernel_cutlass_") else "unknown"


def classify(name: str) -> str:
    """The origin that a name alone tells."""
    return _known(name, CERTAIN + LIKELY) or ("cute" if name.startswith("kernel_cutlass_") else "unknown")


def _known(name: str, table: tuple[tuple[str, str], ...]) -> str:
    path = _path(name)
    return next((origin for origin, pattern in table if re.search(pattern, path)), "")


# --------------------------------------------------------------------------------------------- names


def short(name: str) -> str:
    """A name for a sentence: namespaces and function, without template arguments."""
    path = _path(name).partition("<")[0]
    return path if len(path) <= LONG else path[: LONG - 3] + "..."


def _path(name: str) -> str:
    """`at::native::reduce_kernel` from a mangled or plain name; of cutlass::device_kernel also the namespace of what it runs."""
    name = name[:MOST]
    parts, rest = _components(name) if name.startswith("_Z") else _plain(name)
    path = "::".join(parts)
    inner = re.match(r"I(?:NS?_?)?(\d+)", rest) or re.match(r"<(\w+)::", rest)
    if path != "cutlass::device_kernel" or inner is None:
        return path
    start = inner.end(1)
    return f"{path}<{rest[start : start + int(inner[1])] if inner[1].isdigit() else inner[1]}::"


def _components(name: str) -> tuple[list[str], str]:
    """The identifiers at the head of a mangled name, less anonymous namespaces, and what comes after them."""
    at = re.match(r"_ZL?(?:NK?)?", name)
    rest, parts = name[at.end() :] if at else name, list[str]()
    while size := re.match(r"L?(\d{1,4})", rest):
        end = size.end() + int(size[1])
        parts.append(rest[size.end() : end])
        rest = rest[end:]
    return [part for part in parts if not part.startswith("_GLOBAL__N_")], rest


def _plain(name: str) -> tuple[list[str], str]:
    text = name.replace("(anonymous namespace)::", "").replace("<unnamed>::", "").removeprefix("void ")
    head = re.match(r"[\w:$.]*", text)
    end = head.end() if head else 0
    return [part for part in text[:end].split("::") if part], text[end:]


def percent(share: float) -> str:
    return f"{100 * share:.0f} %" if share >= 0.095 or share == 0 else f"{100 * share:.1f} %"


# --------------------------------------------------------------------------------------------- what files define


def jitted(files: Sequence[File]) -> frozenset[str]:
    """Names of the functions that these files give to Triton's jit. Their grammar was tried inside the walls before."""
    return frozenset(name for file in files if file.path.endswith(".py") for name in _jitted(file.data))


def _jitted(source: bytes) -> Iterator[str]:
    if len(source) > SOURCE_BYTES:
        return
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return
    known = _imported(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and any(_is_jit(d, known) for d in node.decorator_list):
            yield node.name
        if isinstance(node, ast.Call) and _is_jit(node.func, known) and node.args and isinstance(node.args[0], ast.Name):
            yield node.args[0].id


def _imported(tree: ast.Module) -> dict[str, str]:
    """What imported names stand for, as dotted names."""
    known: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            known |= {(a.asname or a.name.partition(".")[0]): (a.name if a.asname else a.name.partition(".")[0]) for a in node.names}
        if isinstance(node, ast.ImportFrom):
            known |= {(a.asname or a.name): f"{node.module or ''}.{a.name}" for a in node.names}
    return known


def _is_jit(node: ast.expr, known: dict[str, str]) -> bool:
    """Whether an expression is Triton's jit (or Gluon's), called with options or not."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute | ast.Call):
        if isinstance(node, ast.Attribute):
            parts.append(node.attr)
        node = node.value if isinstance(node, ast.Attribute) else node.func
    if not isinstance(node, ast.Name):
        return False
    dotted = ".".join([known.get(node.id, node.id), *reversed(parts)])
    return dotted.startswith("triton.") and dotted.endswith(".jit")
