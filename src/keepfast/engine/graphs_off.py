"""What turns CUDA graphs off in the engines that keepfast reads: flags, configuration, environment. Facts of those programs.

An early check that costs nothing. Flags are renamed and engines downgrade silently, so the engine's own counts decide (`readers.logs`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

FLAGS = (
    "--enforce-eager",  # vLLM
    "--disable-cuda-graph",  # SGLang: all of them
    "--disable-decode-cuda-graph",
    "--disable-piecewise-cuda-graph",
    "--disable-prefill-cuda-graph",
    "--disable-cuda-graph-padding",
    "--enable-layerwise-nvtx-marker",  # SGLang, and below vLLM: incompatible with graphs
    "--enable-layerwise-nvtx-tracing",
)
_WEAK = re.compile(r"none|0|piecewise|full_decode_only", re.I)
VALUES = (  # a flag, and what of its value weakens graphs
    (("--optimization-level", "-O"), re.compile(r"0")),
    (("--cuda-graph-backend-decode", "--cuda-graph-backend-prefill"), re.compile(r"disabled|none", re.I)),
    (
        ("--cudagraph-mode", "-cc.cudagraph_mode", "--compilation-config.cudagraph_mode"),
        re.compile(r"none|0|piecewise|full_decode_only", re.I),
    ),
    (("--compilation-config", "-cc", "-O"), re.compile(r'"cudagraph_mode"\s*:\s*("?(none|piecewise|full_decode_only)\b"?|0)', re.I)),
    (("--compilation-config", "-cc", "-O"), re.compile(r'"(mode|level)"\s*:\s*("?none"?|0)\s*[,}]', re.I)),
    (("--cuda-graph-config",), re.compile(r"disabled", re.I)),
)
ENVIRONMENT = (  # a variable, and the values that leave graphs on
    ("GGML_CUDA_DISABLE_GRAPHS", ()),  # llama.cpp looks only whether it is there
    ("TORCH_COMPILE_DISABLE", ("", "0")),
    ("TORCHDYNAMO_DISABLE", ("", "0")),
    ("CUDA_LAUNCH_BLOCKING", ("", "0")),
)


def named(argv: Sequence[str], env: Iterable[tuple[str, str]] = ()) -> tuple[str, ...]:
    """Everything in a command and its environment that turns graphs off or weakens them, as it was written."""
    words = tuple(_pairs(argv))
    flags = [flag for flag, _ in words if flag.replace("_", "-") in FLAGS]
    flags += [f"{flag} {value}" for flag, value in words if any(_same(flag, names) and rule.fullmatch(value) for names, rule in VALUES[:3])]
    flags += [f"{flag} {value}" for flag, value in words if any(_same(flag, names) and rule.search(value) for names, rule in VALUES[3:])]
    flags += [flag for flag, _ in words if flag == "-O0"]
    known = dict(ENVIRONMENT)
    variables = [f"{name}={value}" for name, value in env if name in known and value not in known[name]]
    return tuple(dict.fromkeys((*flags, *variables)))


def _pairs(argv: Sequence[str]) -> Iterable[tuple[str, str]]:
    """Each flag with its value: `--flag=value`, `--flag value`, or "" at the end."""
    for i, word in enumerate(argv):
        if not word.startswith("-"):
            continue
        flag, equals, value = word.partition("=")
        yield flag, value if equals else (argv[i + 1] if i + 1 < len(argv) else "")


def _same(flag: str, names: tuple[str, ...]) -> bool:
    """Flags are written with - or _."""
    plain = flag.replace("_", "-")
    return any(plain == name.replace("_", "-") for name in names)
