"""Inputs of a problem: reproducible arrays of a distribution, rounded to the dtype they have on the device."""
from __future__ import annotations

import hashlib
from collections.abc import Mapping
from functools import cache
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from kir.problem.schema import Draw

Array = NDArray[Any]

_NUMPY = {"bool": np.bool_, "f16": np.float16, "f32": np.float32, "f64": np.float64, "bf16": ml_dtypes.bfloat16,
          "f8e4m3": ml_dtypes.float8_e4m3fn, "f8e5m2": ml_dtypes.float8_e5m2, "e8m0": ml_dtypes.float8_e8m0fnu,
          **{f"i{n}": getattr(np, f"int{n}") for n in (8, 16, 32, 64)}, **{f"u{n}": getattr(np, f"uint{n}") for n in (8, 16, 32, 64)}}


def numpy_dtype(name: str) -> np.dtype[Any]:
    """The NumPy dtype of a dtype of the IR, by its name. Raises KeyError for one that NumPy cannot hold."""
    out: np.dtype[Any] = np.dtype(_NUMPY[name])
    return out


@cache
def unit_roundoff(name: str) -> float:
    """Half the distance from 1 to the next value of a float dtype: the relative error of one rounding to nearest. 0 for integers."""
    dtype = numpy_dtype(name)
    return 0.0 if dtype.kind in "iub" and "float" not in dtype.name else float(ml_dtypes.finfo(dtype).eps) / 2


@cache
def smallest_step(name: str) -> float:
    """The absolute error of one rounding near zero: the distance between subnormals (for f32 the smallest normal, as device math may
    flush subnormals to zero); 0 for integers."""
    dtype = numpy_dtype(name)
    if dtype.kind in "iub" and "float" not in dtype.name:
        return 0.0
    info = ml_dtypes.finfo(dtype)
    return float(info.smallest_normal if name == "f32" else info.smallest_subnormal)


def generator(*key: object) -> np.random.Generator:
    """A stream of random numbers that depends on `key` alone, in every process."""
    digest = hashlib.sha256(repr(key).encode()).digest()
    return np.random.Generator(np.random.Philox(key=int.from_bytes(digest[:16], "little")))


def draw(how: Draw, shape: tuple[int, ...], dtype: str, random: np.random.Generator) -> Array:
    """An array of `shape` after `how` (of a partition: `Draw.at` the sizes), rounded to `dtype`."""
    match how.kind:
        case "normal":
            out = random.normal(how.mean, how.scale, shape)
        case "uniform":
            out = random.uniform(how.low, how.high, shape)
        case "log_uniform":
            out = np.exp2(random.uniform(how.low, how.high, shape)) * random.choice([-1.0, 1.0], shape)
        case "alternating":
            index = np.indices(shape)[-2:].sum(0) if shape else np.zeros(())
            out = np.where(index % 2 == 0, 1.0, -1.0) * how.scale * (1.0 + random.normal(0.0, 2.0**-6, shape))
        case "sparse":
            out = np.where(random.integers(0, how.every, shape) == 0, random.normal(0.0, how.scale, shape), 0.0)
        case "unit":
            rows = random.normal(0.0, 1.0, shape)
            out = rows / np.maximum(np.linalg.norm(rows, axis=-1, keepdims=True), 1e-6)
        case "integers":
            out = random.integers(int(how.low), int(how.high), shape).astype(np.float64)
        case "constant":
            out = np.full(shape, how.low)
        case "special":
            chosen = random.choice([float(v) for v in how.values or ("nan",)], shape)
            out = np.where(random.integers(0, how.every, shape) == 0, chosen, random.normal(how.mean, how.scale, shape))
        case "partition":
            cuts = np.sort(np.floor((how.high + 1) * random.random(shape) ** (1 / how.scale)), axis=-1)
            cuts[..., 0] = 0.0
            out = np.where(np.arange(shape[-1]) % how.every == how.every - 1, np.roll(cuts, 1, axis=-1), cuts)
            out[..., -1] = how.high
    with np.errstate(over="ignore"):  # what a narrow dtype cannot hold is infinite there
        return out.astype(numpy_dtype(dtype))


AROUND = "around "
"""A distribution of this name and a number: the usual draw, with values that stand about that number and its negative."""


TIMES = "times "
"""A distribution of this name and a number: the usual draw of floats, multiplied by it."""


AT = "at "
"""A distribution of this name, a tensor, `=` and values with `;` between them (more after a comma): the usual draw, with one element in four of the tensor
one of these."""


OFFSET = "offset "
"""A distribution of this name, tensors with commas between them, `=` and a number: the usual draw, with so many times its spread added to these."""


WITHIN = "within"
"""A distribution of this name: the usual draw, with the whole numbers of inputs that a problem draws from a range no larger than the sizes are, so that lengths
end within them; every one of these in turn, over several seeds."""


def within(shape: tuple[int, ...], low: int, high: int, seed: int, random: np.random.Generator) -> Array:
    """Whole numbers from `low` to `high - 1` in an order by chance, those of a seed behind those of the one before it."""
    places = np.arange(int(np.prod(shape))).reshape(shape)
    out: Array = low + random.permutation(high - low)[(places + seed * places.size) % (high - low)]
    return out


def offset(text: str, arrays: Mapping[str, Array]) -> dict[str, Array]:
    """The arrays, with those of floats that the rest of such a name says moved by so many times their spread."""
    names, _, times_spread = text.partition("=")
    made = dict(arrays)
    for name in names.split(","):
        if name in made and made[name].size:
            wide = made[name].astype(np.float64)
            made[name] = (wide + float(times_spread) * (float(wide.std()) or 1.0)).astype(made[name].dtype)
    return made


def placed(text: str, arrays: Mapping[str, Array], random: np.random.Generator) -> dict[str, Array]:
    """The arrays with the values that the rest of such a name says in its tensors, those that their dtypes can hold. In tensors of one size they stand in the
    same places, first beside what is next in the list, then beside what is before it, and so on."""
    made, places = dict(arrays), dict[int, Array]()
    for number, part in enumerate(text.split(",")):
        name, _, values = part.partition("=")
        if name not in made or not made[name].size:
            continue
        out = np.array(made[name], copy=True)
        flat, whole = out.reshape(-1), out.dtype.kind in "iu"
        with np.errstate(over="ignore"):
            told = [int(v) if whole else out.dtype.type(float(v)) for v in values.split(";")]
        if kept := [v for v in told if not whole or np.iinfo(out.dtype).min <= v <= np.iinfo(out.dtype).max]:
            some = np.flatnonzero(random.integers(0, 4, flat.size) == 0)
            chosen = places.setdefault(flat.size, some if len(some) else np.arange(1))
            turn, at = np.divmod(np.arange(len(chosen)), len(kept))
            flat[chosen] = np.array(kept, out.dtype)[(at + number * np.where(turn % 2 == 0, 1 + turn // 2, -1 - turn // 2)) % len(kept)]
        made[name] = out
    return made


def times(a: Array, value: float) -> Array:
    """An array of floats times a number; no zero has a sign."""
    with np.errstate(over="ignore"):
        return (a.astype(np.float64) * value + 0.0).astype(a.dtype)


def around(a: Array, value: float, random: np.random.Generator, turn: int = 0) -> Array:
    """An array of floats some slices of which (along the first axis; all of one axis as one slice, which `turn` counts) lie beyond a number and some below
    its negative, all elements of them; of others the first element is the number, and one in four that or a value next to it; and of some the first is
    zero, and all others lie just beyond the negative of the number: what is little by itself is much together. What the dtype cannot hold is not drawn."""
    out = np.array(a, copy=True)
    rows = out.reshape(a.shape[0] if a.ndim > 1 else 1, -1)
    c = abs(value)
    for i in range(rows.shape[0]):
        far = c * random.uniform(2.4, 2.6, rows.shape[1])
        near = value * random.choice([1.0, 1.0, 0.75, 1.25, -1.0, -1.25], rows.shape[1])
        chosen = random.integers(0, 4, rows.shape[1]) == 0
        chosen[:1], near[:1] = True, value
        just = -c * random.uniform(1.0, 1.1, rows.shape[1])
        just[:1] = 0.0
        made = (-far, np.where(chosen, near, rows[i].astype(np.float64)), far, just)[(i + turn) % 4]
        rows[i] = np.clip(made, -float(ml_dtypes.finfo(a.dtype).max), float(ml_dtypes.finfo(a.dtype).max)).astype(a.dtype)
    return out
