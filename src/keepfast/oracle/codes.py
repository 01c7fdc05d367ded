"""Results that are codes: whole numbers and truth values, exact, and types of at most 8 bits, which may be off by one in few places.

A floating type of 8 bits is a ladder of codes, too coarse for an error budget: 4 eps of float8_e4m3fn are half of what it measures.
Must not know budgets of wider types, layouts or reference.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from keepfast.oracle import tensors

if TYPE_CHECKING:
    import numpy as np

OFF_BY_ONE_SHARE = 0.01  # share of 8-bit codes that may differ by one
_FAR = 255  # apart from everything: NaN, an infinity from a number


def wrong(name: str, got: torch.Tensor, expected: torch.Tensor) -> str:
    """ "" or the place that is furthest away."""
    if not tensors.small(expected.dtype) and tensors.same(got.contiguous(), expected.contiguous()):
        return ""
    if expected.element_size() > 1 or expected.dtype == torch.bool:
        return _said(name, got, expected, _first_apart(got, expected))
    apart = _steps(got, expected)
    if int(apart.max()) <= 1 and int(torch.count_nonzero(apart)) <= OFF_BY_ONE_SHARE * apart.numel():
        return ""
    per_element = apart.numel() // got.numel()  # packed types have two codes to an element
    return _said(name, got, expected, int(apart.argmax()) // per_element)


def budget(expected: torch.Tensor) -> tuple[float, float]:
    """What off-by-one codes amount to as numbers, relative to the RMS of the whole: (RMS, worst element). 0 where codes are exact."""
    if expected.element_size() > 1 or expected.dtype == torch.bool or tensors.packed(expected.dtype):
        return 0.0, 0.0
    size = tensors.rms(expected)
    if size == 0.0:
        return 0.0, 0.0
    if not expected.dtype.is_floating_point:
        return OFF_BY_ONE_SHARE**0.5 / size, 1.0 / size
    eps = tensors.eps_of(expected.dtype)
    return OFF_BY_ONE_SHARE**0.5 * eps, eps * float(expected.reshape(-1).float().abs().max()) / size


def _steps(got: torch.Tensor, expected: torch.Tensor) -> torch.Tensor:
    """Distance of codes, element by element, flat."""
    a, b = (_ladder(t) for t in (got, expected))
    apart = (a - b).abs()
    if not expected.dtype.is_floating_point or tensors.packed(expected.dtype):
        return apart
    x, y = (t.contiguous().reshape(-1).float() for t in (got, expected))
    strange = ~(torch.isfinite(x) & torch.isfinite(y))
    return torch.where(strange & ~(x == y), _FAR, apart)  # NaN is not equal to itself


def _ladder(tensor: torch.Tensor) -> torch.Tensor:
    """Codes in the order of their values, flat, as int16: neighbours are one apart."""
    flat = tensor.contiguous().reshape(-1)
    if not flat.dtype.is_floating_point:
        return flat.to(torch.int16)
    code = tensors.bits(flat).to(torch.int16)
    if tensors.packed(tensor.dtype):
        return _signed(torch.stack((code & 15, code >> 4), dim=1).reshape(-1), 8)
    return code if tensors.name_of(tensor.dtype) == "float8_e8m0" else _signed(code, 128)


def _signed(code: torch.Tensor, sign: int) -> torch.Tensor:
    return torch.where(code >= sign, sign - code, code)


def _first_apart(got: torch.Tensor, expected: torch.Tensor) -> int:
    """Where whole numbers of any width are furthest apart. On the host, where all of them can be subtracted."""
    import numpy as np

    a, b = (_host(t) for t in (got, expected))
    if a.dtype.kind not in "iu":
        return int(np.argmax(a != b))
    x, y = a.astype(np.uint64), b.astype(np.uint64)  # modulo 2^64, so that the larger minus the smaller is right
    return int(np.argmax(np.where(a > b, x - y, y - x)))


def _host(tensor: torch.Tensor) -> np.ndarray:
    flat = tensor.contiguous().reshape(-1)
    found: np.ndarray = (tensors.bits(flat) if flat.dtype == torch.bool else flat).cpu().numpy()
    return found


def _said(name: str, got: torch.Tensor, expected: torch.Tensor, place: int) -> str:
    index = list(tensors.unravel(place, got.shape))
    return f"{name}{index}: got {_number(got, place)}, expected {_number(expected, place)}"


def _number(tensor: torch.Tensor, place: int) -> str:
    """One element for people. A truth value that is neither 0 nor 1 is shown as what it is."""
    element = tensor.contiguous().reshape(-1)[place : place + 1]
    if tensors.packed(tensor.dtype):
        return f"{int(tensors.bits(element)):#04x}"
    if tensor.dtype.is_floating_point:
        return f"{float(element):.7g}"
    value = int(_host(element)[0])
    return str(bool(value)) if tensor.dtype == torch.bool and value < 2 else str(value)
