"""What inputs() says for an argument whose contents were captured: numbers like them from the profile, or the contents themselves.

Writes texts. Must not know which function they are for.
"""

from __future__ import annotations

import json
from hashlib import sha256

from msgspec import Struct, to_builtins

from keepfast import dtypes
from keepfast.harvest.records import LEVELS, Profile

NORMAL = (0.0, 0.0, 0.0, 0.0, -2.054, -1.645, -1.282, -0.842, -0.524, -0.253)  # quantiles at LEVELS, the lower half; 0: not compared
CLOSE = 0.15  # standard deviations that quantiles of normal numbers may be off, and more where they are of few numbers
FEW = 4096  # values from which one of an argument is drawn as often as it was seen
FOLDER = "captured"

HELPER = '''\
LEVELS = {levels}


def like(quantiles, shape, dtype, rng, zeros=0.0):
    """Numbers with these quantiles at LEVELS, and a share of zeros."""
    at = torch.rand(shape, generator=rng, device=rng.device, dtype=torch.float64)
    levels, values = (torch.tensor(t, dtype=torch.float64, device=rng.device) for t in (LEVELS, quantiles))
    low = (torch.bucketize(at, levels) - 1).clamp(0, len(LEVELS) - 2)
    found = torch.lerp(values[low], values[low + 1], (at - levels[low]) / (levels[low + 1] - levels[low]))
    found = found if dtype.is_floating_point else found.round()
    return torch.where(torch.rand(shape, generator=rng, device=rng.device) < zeros, 0.0, found).to(dtype)
'''
LOADER = '''\
CAPTURED = Path(__file__).resolve().parent / "captured"
INDEX = "{digest}"  # sha256 of captured/index.json, which has those of the contents
NOISE = 0.01


def checked(name, digest):
    data = (CAPTURED / name).read_bytes()
    if hashlib.sha256(data).hexdigest() != digest:
        raise ValueError(f"captured/{{name}} is not what was captured")
    return data


def captured(case, rng):
    """The contents of one captured call of this case, chosen by `rng`; nothing where none were kept."""
    calls = json.loads(checked("index.json", INDEX)).get(case.name, [])
    if not calls:
        return {{}}
    call = calls[int(torch.randint(len(calls), (1,), generator=rng, device=rng.device))]
    data = checked(call["file"], call["sha256"])
    return {{part["name"]: captured_tensor(part, data, rng) for part in call["parts"]}}


def captured_tensor(part, data, rng):
    """As it lay in memory; floating ones with a little of themselves added or taken away, so that no two draws are the same."""
    dtype, shape = getattr(torch, part["dtype"]), tuple(part["shape"])
    piece = bytearray(data[part["at"] : part["at"] + part["nbytes"]])
    flat = (torch.frombuffer(piece, dtype=torch.uint8).view(dtype) if piece else torch.empty(0, dtype=dtype)).reshape(shape).to(rng.device)
    if dtype.is_floating_point:
        wide = flat.to(torch.float64 if dtype == torch.float64 else torch.float32)
        flat = (wide * (1 + NOISE * torch.randn(shape, generator=rng, device=rng.device))).to(dtype)
    if any(step == 0 for step in part["stride"]):
        return flat
    return torch.empty_strided(shape, part["stride"], dtype=dtype, device=rng.device).copy_(flat)
'''


class Drawing(Struct, frozen=True):
    """An expression for inputs(), and sentences about it. `helper`: it needs `like`."""

    text: str
    helper: bool = False
    notes: tuple[str, ...] = ()


def helper() -> str:
    return HELPER.format(levels=LEVELS)


def drawing(profile: Profile, shape: str, below: str) -> Drawing:
    """Numbers like those of the profile. `shape` and `below`: as inputs() writes them; `below` "" when no size bounds whole numbers."""
    kind = dtypes.by_name(profile.dtype)
    if kind.name == "bool":
        return Drawing(f"torch.rand({shape}, **here) < {1 - profile.zeros:.4g}")
    return _floating(profile, shape, kind) if kind.is_float else _whole(profile, shape, below)


# --------------------------------------------------------------------------------------------- floating point


def _floating(profile: Profile, shape: str, kind: dtypes.DType) -> Drawing:
    notes = _odd(profile)
    torch_name = f"torch.{kind.name}"
    if profile.high == profile.low:
        base, spread = profile.low, 0.1 * max(abs(profile.low), 0.1)
        notes = (*notes, f"`{profile.name}` was {base:.4g} throughout: drawn around it, so that it makes a difference")
        return Drawing(_normal(base, spread, shape, kind), notes=notes)
    if profile.zeros < 0.01 and _is_normal(profile):
        return Drawing(_normal(profile.mean, profile.std, shape, kind), notes=notes)
    zeros = f", zeros={profile.zeros:.4g}" if profile.zeros >= 0.01 else ""
    return Drawing(f"like({_tuple(profile.quantiles)}, {shape}, {torch_name}, rng{zeros})", True, notes)


def _is_normal(profile: Profile) -> bool:
    """Whether the quantiles are those of normal numbers, as far as the middle 96 % go, and no outlier is beyond."""
    half = len(LEVELS) // 2
    lower = [(profile.quantiles[i] - profile.mean) / profile.std for i in range(half)]
    upper = [(profile.mean - profile.quantiles[-1 - i]) / profile.std for i in range(half)]
    close = CLOSE + 5 / profile.elements**0.5
    near = all(abs(z - NORMAL[i]) < close for side in (lower, upper) for i, z in enumerate(side) if NORMAL[i])
    return near and max(abs(profile.low - profile.mean), abs(profile.high - profile.mean)) < 7 * profile.std


def _normal(mean: float, std: float, shape: str, kind: dtypes.DType) -> str:
    plain = abs(mean) < 0.05 and abs(std - 1) < 0.05
    if plain and kind.bits >= 16:
        return f"torch.randn({shape}, dtype=torch.{kind.name}, **here)"
    drawn = f"torch.randn({shape}, dtype=torch.{'float64' if kind.name == 'float64' else 'float32'}, **here)"
    drawn = drawn if plain else f"({mean:.4g} + {std:.4g} * {drawn})"
    return drawn if kind.name == "float32" or (plain and kind.bits >= 16) else f"{drawn}.to(torch.{kind.name})"


def _odd(profile: Profile) -> tuple[str, ...]:
    found = []
    if profile.nan:
        found.append(f"`{profile.name}` held NaN ({profile.nan:.2%}): not drawn, as no answer could be compared")
    if profile.negative_infinity or profile.positive_infinity:
        share = profile.negative_infinity + profile.positive_infinity
        found.append(f"`{profile.name}` held infinities ({share:.1%}), as masks do: not drawn; --contents has them")
    if profile.outliers > 1e-4:
        far = max(abs(profile.low), abs(profile.high))
        said = f"`{profile.name}` has outliers ({profile.outliers:.2%}, up to {far:.3g})"
        found.append(f"{said}: drawn anywhere; --contents has them where they were")
    return tuple(found)


# --------------------------------------------------------------------------------------------- whole numbers


def _whole(profile: Profile, shape: str, below: str) -> Drawing:
    low, high = int(profile.low), int(profile.high)
    limit = below or str(high + 1)
    dtype = f"torch.{profile.dtype}"
    cast = "" if profile.dtype == "int64" else f".to({dtype})"
    what = [w for w, share in (("sorted", profile.sorted), ("without repetition", profile.unique)) if share > 0.99]
    if profile.unique > 0.99:
        text = _without_repetition(shape, low, limit)
        text = f"{text}.sort(-1).values" if profile.sorted > 0.99 else text
    elif profile.sorted > 0.99:
        text = f"torch.randint({low}, {limit}, {shape}, dtype=torch.int64, **here).sort(-1).values"
    elif profile.top > 3 / max(profile.distinct, 1) and profile.distinct <= FEW:
        what.append("skewed")
        return Drawing(f"like({_tuple(profile.quantiles)}, {shape}, {dtype}, rng)", True, _structure(profile, what))
    else:
        text = f"torch.randint({low}, {limit}, {shape}, dtype=torch.int64, **here)"
    return Drawing(f"{text}{cast}", notes=_structure(profile, what))


def _structure(profile: Profile, what: list[str]) -> tuple[str, ...]:
    known = f" ({' and '.join(what)})" if what else ""
    return (f"`{profile.name}` are whole numbers{known}: what else they mean together is not drawn; --contents has it",)


def _without_repetition(shape: str, low: int, limit: str) -> str:
    """Rows of different numbers: the places of the smallest of so many random ones."""
    outer, _, last = shape.strip("()").rstrip(",").rpartition(",")
    size = f"{limit} - {low}" if low else limit
    rows = f"torch.rand(({outer}, {size}), **here)" if outer else f"torch.rand(({size},), **here)"
    return f"{rows}.argsort(-1)[..., :{last.strip()}]{f' + {low}' if low else ''}"


def _tuple(values: tuple[float, ...]) -> str:
    return f"({', '.join(f'{v:.4g}' for v in values)})"


# --------------------------------------------------------------------------------------------- captured contents


class Stored(Struct, frozen=True):
    """Contents of a call in the task folder."""

    file: str
    sha256: str
    parts: tuple[dict[str, object], ...]


def stored(calls: dict[str, tuple[Stored, ...]]) -> tuple[str, bytes]:
    """The loader for reference.py, and captured/index.json. `calls`: by the name of the case."""
    index = json.dumps(to_builtins(calls), indent=1, sort_keys=True).encode() + b"\n"
    return LOADER.format(digest=sha256(index).hexdigest()), index
