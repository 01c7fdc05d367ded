"""The statistics of keepfast: quantiles, medians, estimates with intervals.

Owns pure arithmetic on numbers. Must not know rules, rounds, verdicts or files.
Student's t has whole degrees of freedom here, so its distribution is a finite sum (Abramowitz and Stegun 26.7.3 and 26.7.4);
quantiles are found by bisection, which needs nothing but the distribution and cannot miss.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import lru_cache

from keepfast.model import Estimate


def median(values: Sequence[float]) -> float:
    """Median of at least one value; the mean of the two in the middle when their number is even."""
    if not values:
        raise ValueError("the median of nothing")
    ordered = sorted(values)
    half = len(ordered) // 2
    return ordered[half] if len(ordered) % 2 else (ordered[half - 1] + ordered[half]) / 2


def mean(values: Sequence[float]) -> float:
    if not values:
        raise ValueError("the mean of nothing")
    return math.fsum(values) / len(values)


def sample_sd(values: Sequence[float]) -> float:
    """Standard deviation with n - 1 in the denominator; 0.0 for a single value, which shows no spread."""
    if len(values) < 2:
        return 0.0
    centre = mean(values)
    return math.sqrt(math.fsum((v - centre) ** 2 for v in values) / (len(values) - 1))


def normal_cdf(x: float) -> float:
    return 0.5 * math.erfc(-x / math.sqrt(2))


def student_cdf(t: float, df: int) -> float:
    """P(T <= t) of Student's t with `df` >= 1 degrees of freedom."""
    if df < 1:
        raise ValueError(f"Student's t needs at least one degree of freedom, not {df}")
    within = _student_within(abs(t), df)
    return 0.5 * (1 + within) if t >= 0 else 0.5 * (1 - within)


def _student_within(t: float, df: int) -> float:
    """P(|T| <= t) for t >= 0."""
    angle = math.atan(t / math.sqrt(df))
    sine, cosine2 = math.sin(angle), math.cos(angle) ** 2
    odd = df % 2
    term = math.cos(angle) if odd else 1.0
    total = 0.0
    for k in range(df // 2):  # cosines to the power 1, 3, ... df-2 (odd) or 0, 2, ... df-2 (even)
        total += term
        term *= cosine2 * (2 * k + 1 + odd) / (2 * k + 2 + odd)
    return 2 / math.pi * (angle + sine * total) if odd else sine * total


@lru_cache(maxsize=256)
def normal_quantile(p: float) -> float:
    """The z with P(Z <= z) = p, 0 < p < 1."""
    return _upper_half(p, normal_cdf)


@lru_cache(maxsize=256)
def student_quantile(p: float, df: int) -> float:
    """The t with P(T <= t) = p, 0 < p < 1, `df` >= 1."""
    return _upper_half(p, lambda t: student_cdf(t, df))


def _upper_half(p: float, cdf: Callable[[float], float]) -> float:
    """Quantile of a distribution that is symmetric about 0. Found where p > 1/2 and mirrored."""
    if not 0 < p < 1:
        raise ValueError(f"a quantile needs 0 < p < 1, not {p}")
    if p == 0.5:
        return 0.0
    return _bisect(p, cdf) if p > 0.5 else -_bisect(1 - p, cdf)


def _bisect(p: float, cdf: Callable[[float], float]) -> float:
    low, high = 0.0, 1.0
    while cdf(high) < p:
        low, high = high, 2 * high
    while low < (middle := (low + high) / 2) < high:
        low, high = (middle, high) if cdf(middle) < p else (low, middle)
    return high


def quantile_q(sample: float, sigma: float, count: int, alpha: float) -> float:
    """The q of `mean + q s / sqrt(count)` that leaves `alpha` above it, one-sided.

    s is the larger of the sample's SD and the calibrated `sigma`. Student's t when it is the sample's, which `count` values
    know poorly; normal when it is the calibrated one, which many rounds know well.
    """
    if sample > sigma and count > 1:
        return student_quantile(1 - alpha, count - 1)
    return normal_quantile(1 - alpha)


def half_width(values: Sequence[float], sigma: float, alpha: float) -> float:
    """Distance from the mean to its one-sided bound at `alpha`: q max(SD, sigma) / sqrt(n)."""
    spread = sample_sd(values)
    return quantile_q(spread, sigma, len(values), alpha) * max(spread, sigma) / math.sqrt(len(values))


def estimate(values: Sequence[float], opponent: str, sigma: float, alpha: float = 0.05) -> Estimate:
    """Mean of log-ratios, one a round, with a two-sided interval that misses with probability `alpha`.

    `sd` is the sample's own (the calibrated `sigma` for a single round); the interval uses the larger of the two.
    """
    centre, reach = mean(values), half_width(values, sigma, alpha / 2)
    spread = sample_sd(values) if len(values) > 1 else sigma
    return Estimate(centre, centre - reach, centre + reach, spread, len(values), opponent)
