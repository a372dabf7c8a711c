"""Triton's counter-based random numbers."""

from __future__ import annotations

from kir.ir import build
from kir.ir import nodes as n
from kir.ir.types import F32, I32, U32, U64, dtype_of, shape_of

from ..state.naming import named
from ..state.state import State
from ..types.shapes import filled, stretched
from ..values import operators
from ..values.arguments import Arguments
from ..values.values import Items, NotUnderstood, Run, Value


def bits(r: State, lane: int, seed: Value, offset: Value, rounds: Value) -> n.Expr:
    """Random bits of lane `lane` (0 to 3) of Philox, as `tl.randint4x` gives them."""
    c = operators.run(offset)
    if dtype_of(c.type).bits == 64:
        low, high = build.cast(c, U32), build.cast(build.binary("shr", c, build.const(32, dtype_of(c.type))), U32)
    else:
        low = build.cast(c, U32)
        high = filled(build.const(0, U32), shape_of(low.type))
    zero = filled(build.const(0, U32), shape_of(low.type))
    return build.call(
        "philox",
        build.cast(operators.run(seed), U64),
        low,
        high,
        zero,
        zero,
        lane=lane,
        rounds=operators.known_int(rounds, "the rounds of philox"),
    )


def randint(r: State, a: Arguments) -> Value:
    """`tl.randint`."""
    return Run(bits(r, 0, a.need(0, "seed"), a.need(1, "offset"), a.get(2, "n_rounds", 10)))


def randint4x(r: State, a: Arguments) -> Value:
    """`tl.randint4x`."""
    seed, offset = named(r, "seed", a.need(0, "seed")), named(r, "offset", a.need(1, "offset"))
    return Items(tuple(Run(bits(r, k, seed, offset, a.get(2, "n_rounds", 10))) for k in range(4)))


def rand(r: State, a: Arguments) -> Value:
    """`tl.rand`."""
    made = randint(r, a)
    assert isinstance(made, Run)
    return Run(unit(made.expr))


def unit(e: n.Expr) -> n.Expr:
    """u32 random bits as an f32 in [0, 1), as `tl.uint_to_uniform_float` does it."""
    if dtype_of(e.type).bits not in (0, 32):
        raise NotUnderstood("random bits of another width than 32")
    x = build.cast(e, I32, "bits")
    folded = build.select(build.compare("lt", x, 0), build.sub(build.negate(x), 1), x)
    return build.mul(build.cast(folded, F32), 4.6566127342e-10)


def rand4x(r: State, a: Arguments) -> Value:
    """`tl.rand4x`."""
    made = randint4x(r, a)
    assert isinstance(made, Items)
    return Items(tuple(Run(unit(x.expr)) for x in made.items if isinstance(x, Run)))


def to_uniform(r: State, a: Arguments) -> Value:
    """`tl.uint_to_uniform_float`."""
    x = operators.run(a.need(0, "x"))
    if dtype_of(x.type).bits not in (0, 32):
        raise NotUnderstood("random bits of another width than 32")
    return Run(unit(build.cast(x, U32, "bits")))


def philox(r: State, a: Arguments) -> Value:
    """`tl.philox`."""
    seed = operators.run(a.need(0, "seed"))
    c = [operators.run(a.need(k, f"c{k - 1}")) for k in range(1, 5)]
    if any(dtype_of(x.type).bits == 64 for x in c):
        raise NotUnderstood("philox on 64-bit counters")
    rounds = operators.known_int(a.get(5, "n_rounds", 10), "the rounds of philox")
    shape: tuple[int | n.Expr, ...] = ()
    for x in c:
        shape = shape_of(x.type) or shape
    counters = [
        stretched(build.cast(x, U32, "bits" if dtype_of(x.type).bits == 32 and dtype_of(x.type) != U32 else "rn"), shape) for x in c
    ]
    return Items(tuple(Run(build.call("philox", build.cast(seed, U64), *counters, lane=k, rounds=rounds)) for k in range(4)))


def randn(r: State, a: Arguments) -> Value:
    """`tl.randn`."""
    made = randint4x(r, a)
    assert isinstance(made, Items)
    u = [unit(x.expr) for x in made.items[:2] if isinstance(x, Run)]
    return Run(normals(r, u[0], u[1])[0])


def normals(r: State, u: n.Expr, v: n.Expr) -> tuple[n.Expr, n.Expr]:
    """Box-Muller, as `tl.pair_uniform_to_normal` does it."""
    u = r.out.let("u", build.maximum(u, build.broadcast(build.const(1.0e-7, F32), u.type)))
    angle = r.out.let("angle", build.mul(v, 6.283185307179586))
    radius = r.out.let("radius", build.call("sqrt_approx", build.mul(build.call("log", u), -2.0)))
    return build.mul(radius, build.call("cos", angle)), build.mul(radius, build.call("sin", angle))


def pair_to_normal(r: State, a: Arguments) -> Value:
    """`tl.pair_uniform_to_normal`."""
    x, y = normals(r, operators.run(a.need(0, "u1")), operators.run(a.need(1, "u2")))
    return Items((Run(x), Run(y)))
