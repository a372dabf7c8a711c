"""Special functions in f64 on NumPy: those that neither NumPy nor `math` has for arrays."""
from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from kir.interp.numerics.number import Array

Elementwise = Callable[..., Array]
FAR = 600.0
"""Beyond this the Bessel functions of the first kind follow Hankel's expansion to f32 precision."""


def each(fn: Callable[[float], float]) -> Elementwise:
    """A function of one number over an array."""
    def run(x: Array) -> Array:
        return np.array([fn(v) for v in x.reshape(-1).tolist()], np.float64).reshape(x.shape)
    return run


def lgamma(x: float) -> float:
    """log |gamma(x)|; infinite at the poles."""
    if math.isnan(x):
        return math.nan
    return math.inf if math.isinf(x) or (x <= 0 and x == math.floor(x)) else math.lgamma(x)


def tgamma(x: float) -> float:
    """gamma(x); NaN at negative integers, infinite at zero and beyond the range."""
    if math.isnan(x) or (x < 0 and (math.isinf(x) or x == math.floor(x))):
        return math.nan
    if x == 0:
        return math.copysign(math.inf, x)
    try:
        return math.gamma(x)
    except OverflowError:
        return math.inf


def erfinv(x: float) -> float:
    """Newton's method on erf from Winitzki's estimate (2008, "A handy approximation for the error function and its inverse")."""
    if math.isnan(x) or abs(x) >= 1:
        return math.copysign(math.inf, x) if abs(x) == 1 else math.nan
    a, lean = 0.147, math.log1p(-x * x)
    half = 2 / (math.pi * a) + lean / 2
    y = math.copysign(math.sqrt(math.sqrt(half * half - lean / a) - half), x)
    for _ in range(4):
        y -= (math.erf(y) - x) * math.sqrt(math.pi) / 2 * math.exp(y * y)
    return y


def erfcx(x: float) -> float:
    """exp(x^2) erfc(x), by its asymptotic series where the product would lose its digits."""
    if x < -26:
        return math.inf
    if x < 20:
        return math.exp(x * x) * math.erfc(x)
    if math.isinf(x):
        return 0.0
    y = 1 / (2 * x * x)
    return (1 - y + 3 * y * y - 15 * y**3) / (x * math.sqrt(math.pi))


NEAR = 1e-4
"""Below this a mean over the circle loses an odd function's digits, and two terms of its series are exact to f32."""


def _circle(x: Array, kernel: Callable[[Array, Array], Array]) -> Array:
    """The mean of `kernel(x, angle)` over the circle: for periodic integrands the trapezoid rule converges exponentially."""
    largest = float(np.abs(x[np.isfinite(x)]).max(initial=0.0))
    angles = np.arange(n := int(2 * largest) + 64) * (2 * np.pi / n)
    out: Array = kernel(x[..., None], angles).mean(axis=-1)
    return out


def _first_kind(order: int) -> Elementwise:
    def run(x: Array) -> Array:
        near = np.where(np.abs(x) <= FAR, x, 0.0)
        small = _circle(near, lambda v, a: np.cos(v * np.sin(a) - order * a))
        big = np.where(np.abs(x) > FAR, np.abs(x), FAR)
        mu, phase = 4.0 * order * order, big - (order / 2 + 0.25) * np.pi
        far = np.sqrt(2 / (np.pi * big)) * (np.cos(phase) - (mu - 1) / (8 * big) * np.sin(phase))
        far = np.where(np.isinf(big), 0.0, far) * (np.sign(x) if order % 2 else 1.0)
        if order == 1:
            small = np.where(np.abs(near) < NEAR, near / 2 * (1 - near * near / 8), small)
        return np.asarray(np.where(np.isnan(x), np.nan, np.where(np.abs(x) <= FAR, small, far)))
    return run


def _modified(order: int) -> Elementwise:
    def run(x: Array) -> Array:
        near = np.clip(x, -700.0, 700.0)
        out = _circle(near, lambda v, a: np.exp(v * np.cos(a)) * np.cos(order * a))
        if order == 1:
            out = np.where(np.abs(near) < NEAR, near / 2 * (1 + near * near / 8), out)
        beyond = np.inf * (np.sign(x) if order % 2 else np.ones_like(x))
        return np.asarray(np.where(np.isnan(x), np.nan, np.where(np.abs(x) > 700.0, beyond, out)))
    return run


bessel_j0, bessel_j1, bessel_i0, bessel_i1 = _first_kind(0), _first_kind(1), _modified(0), _modified(1)


def _lesser(a: Array, b: Array) -> Array:
    return np.asarray(np.where(a == b, np.where(np.signbit(a), a, b), np.minimum(a, b)))


def min_nan(a: Array, b: Array) -> Array:
    """The minimum, NaN if either is; -0 is less than +0 (PTX ISA, `min`)."""
    return _lesser(a, b)


def max_nan(a: Array, b: Array) -> Array:
    """The maximum, NaN if either is; +0 is greater than -0 (PTX ISA, `max`)."""
    return -_lesser(-a, -b)


def round_away(x: Array) -> Array:
    """To the nearest integer, ties away from zero."""
    whole = np.trunc(x)
    out: Array = np.copysign(np.abs(whole) + (np.abs(x - whole) >= 0.5), x)
    return out


def remainder(a: Array, b: Array) -> Array:
    """IEEE remainder: a - b * round_even(a / b), exactly."""
    out = [math.remainder(x, y) if y and math.isfinite(x) and not math.isnan(y) else math.nan
           for x, y in zip(*(v.reshape(-1).tolist() for v in np.broadcast_arrays(a, b)), strict=True)]
    return np.array(out, np.float64).reshape(np.broadcast_shapes(a.shape, b.shape))


def ilogb(x: Array) -> Array:
    """The binary exponent as i32; the extremes for zero, NaN and infinity (CUDA math API, ilogbf)."""
    _, exponent = np.frexp(x)
    out: Array = np.where(np.isinf(x), 2**31 - 1, np.where((x == 0) | np.isnan(x), -(2**31), exponent.astype(np.int64) - 1))
    return out.astype(np.int32)
