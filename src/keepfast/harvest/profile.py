"""Contents as numbers: range, spread, quantiles, what is odd about them. Must not know files or calls."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from keepfast.harvest import decode
from keepfast.harvest.records import LEVELS, Part, Profile

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

ELEMENTS = 1 << 22  # of one argument that are looked at
FAR = 10.0  # widths of the middle half


def of_argument(name: str, found: list[tuple[Part, bytes]]) -> Profile | None:
    """The profile of one tensor argument over its samples; None where there is nothing to say."""
    import numpy as np

    kind = decode.known(found[0][0].dtype)
    if kind is None:
        return None
    each = max(1, ELEMENTS // len(found))
    rows = [(_thinned(decode.numbers(data, kind), each), part) for part, data in found if part.dtype == found[0][0].dtype and data]
    if not rows:
        return None
    values = np.concatenate([row for row, _ in rows])
    shape = _order(found, kind.is_float)
    return _described(name, kind.name, values, (len(rows), all(part.whole for _, part in rows)), shape)


def _thinned(values: NDArray[np.float64], most: int) -> NDArray[np.float64]:
    return values[:: max(1, -(-len(values) // most))]


def _described(
    name: str, dtype: str, values: NDArray[np.float64], seen: tuple[int, bool], order: tuple[float, float]
) -> Profile:  # fmt: skip
    import numpy as np

    finite = values[np.isfinite(values)]
    some = finite if len(finite) else np.zeros(1)
    quantiles = np.quantile(some, LEVELS)
    low, middle, high = np.quantile(some, (0.25, 0.5, 0.75))
    far = np.abs(finite - middle) > FAR * max(high - low, 1e-300)
    kinds, counts = np.unique(values, return_counts=True) if not _float(dtype) else (values[:0], np.ones(1, int))
    return Profile(
        name, dtype, len(values), *seen,
        low=float(some.min()), high=float(some.max()), mean=float(some.mean()), std=float(some.std()),
        quantiles=tuple(float(q) for q in quantiles),
        zeros=_share(values == 0), nan=_share(np.isnan(values)),
        positive_infinity=_share(values == math.inf), negative_infinity=_share(values == -math.inf),
        outliers=float(far.sum() / max(len(values), 1)) if _float(dtype) and high > low else 0.0,
        sorted=order[0], unique=order[1],
        top=float(counts.max() / max(len(values), 1)) if len(kinds) else 0.0, distinct=len(kinds),
    )  # fmt: skip


def _float(dtype: str) -> bool:
    kind = decode.known(dtype)
    return kind is not None and kind.is_float


def _share(mask: NDArray[np.bool_]) -> float:
    return float(mask.mean()) if len(mask) else 0.0


def _order(found: list[tuple[Part, bytes]], is_float: bool) -> tuple[float, float]:
    """Shares of rows, along the last dimension, that do not fall, and that hold nothing twice. Of whole numbers that were kept whole."""
    import numpy as np

    rising = single = total = 0
    for part, data in found if not is_float else ():
        kind = decode.known(part.dtype)
        width = part.shape[-1] if part.shape else 1
        if kind is None or not part.whole or width < 2 or len(data) > 8 * ELEMENTS:
            continue
        rows = decode.numbers(data, kind).reshape(-1, width)[:4096]
        steps = np.diff(np.sort(rows, axis=1), axis=1)
        rising += int((np.diff(rows, axis=1) >= 0).all(axis=1).sum())
        single += int((steps > 0).all(axis=1).sum())
        total += len(rows)
    return (rising / total, single / total) if total else (0.0, 0.0)
