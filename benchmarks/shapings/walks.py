"""Kernels that walk a memory in a factorization of their own: some of its axes are the grid's, some loops, the last lanes, in chunks or at once."""
from __future__ import annotations

from dataclasses import dataclass
from random import Random

from .kernel import Factors, Kernel, Memory, bounded, grouped, product, sized

NAMES = ("A", "B", "C", "D")
MOST = {"A": 3, "B": 4, "C": 3, "D": 13}


@dataclass(frozen=True)
class Walk:
    """Axes with their places in the kernel, from the outermost in memory on, and where the output's axes lie."""

    axes: tuple[tuple[str, Factors], ...]
    """Of each axis: `grid`, `loop` or `lane`, and its extent."""
    order: tuple[int, ...]
    """The input's axes as they follow one another in the output."""
    masked: str
    """What keeps lanes inside: `component`, `flat` (nothing but the end of the memory) or `both`."""
    shift: int
    """How far beside the walked element the input is read; what is outside of the row, or of the memory where masks are flat, reads 0."""

    def strides(self, order: tuple[int, ...]) -> dict[int, Factors]:
        out: dict[int, Factors] = {}
        inner: Factors = ()
        for k in reversed(order):
            out[k] = inner
            inner = (*self.axes[k][1], *inner)
        return out


def drawn(rng: Random) -> tuple[Walk, tuple[str, ...], dict[str, int]]:
    """A walk over some sizes, and what divides them."""
    names = NAMES[:rng.randint(2, 4)]
    names = tuple(rng.sample(names, len(names)))
    factors: Factors = (*names, *([rng.choice((2, 4, 6, 8))] if rng.random() < 0.4 else []))
    groups = grouped(rng, factors)
    kinds = ["lane"] if len(groups) == 1 else [*(rng.choice(("grid", "grid", "loop")) for _ in groups[:-1]), "lane"]
    order = tuple(range(len(groups)))
    if rng.random() < 0.3:
        order = tuple(rng.sample(order, len(order)))
    steps = {name: rng.choice((2, 4, 8)) for name in names if rng.random() < 0.15}
    walk = Walk(tuple(zip(kinds, groups, strict=True)), order, rng.choice(("component", "component", "both")), rng.choice((0, 0, 0, 1, -1, 2)))
    return walk, names, steps


def index(strides: dict[int, Factors], own: tuple[str, ...]) -> str:
    """The flat index of an element as C and Python both write it."""
    return " + ".join(" * ".join((own[k], *([f"({product(stride)})"] if len(stride) > 1 else map(str, stride)))) for k, stride in strides.items())


def triton(rng: Random) -> Kernel:
    """The walk as Triton."""
    walk, names, steps = drawn(rng)
    lines: list[str] = []
    grid: list[str] = []
    own: dict[int, str] = {}
    block = rng.choice((8, 16, 32))
    several = rng.random() < 0.4
    gridded = [k for k, (kind, _) in enumerate(walk.axes) if kind == "grid"]
    if several and len(gridded) > 1:
        lines.append("pid = tl.program_id(0)")
        for k in gridded:
            own[k] = f"i{k}"
        inner = ""
        for k in reversed(gridded):
            at = f"pid // ({inner})" if inner else "pid"
            lines.append(f"i{k} = {at}" + (f" % ({product(walk.axes[k][1])})" if k != gridded[0] else ""))
            inner = " * ".join(x for x in (str(product(walk.axes[k][1])), inner) if x)
        grid = [inner]
    else:
        for n, k in enumerate(gridded):
            lines.append(f"i{k} = tl.program_id({n % 3})")
            grid.append(str(product(walk.axes[k][1])))
            own[k] = f"i{k}"
    lane = len(walk.axes) - 1
    end = str(product(walk.axes[lane][1]))
    indent = ""
    for k, (kind, extent) in enumerate(walk.axes):
        if kind == "loop":
            lines.append(f"{indent}for i{k} in range({product(extent)}):")
            indent += "    "
            own[k] = f"i{k}"
    way = rng.choice(("chunks", "pid"))
    if way == "pid" and len(grid) < 3 and not (several and len(gridded) > 1):
        lines.insert(0, f"chunk = tl.program_id({len(grid)})")
        grid.append(f"ceildiv({end}, BLOCK)")
        lines.append(f"{indent}at = chunk * BLOCK + tl.arange(0, BLOCK)")
    else:
        lines.append(f"{indent}for start in range(0, {end}, BLOCK):")
        indent += "    "
        lines.append(f"{indent}at = start + tl.arange(0, BLOCK)")
    own[lane] = "at"
    names_of = tuple(own[k] for k in range(len(walk.axes)))
    place = index(walk.strides(tuple(range(len(walk.axes)))), names_of)
    out = index(walk.strides(walk.order), names_of)
    total = " * ".join(str(product(e)) for _, e in walk.axes)
    mask = f"at < {end}"
    if walk.masked == "both":
        mask = f"({mask}) & ({place} < {total})"
    lines.append(f"{indent}mask = {mask}")
    read, reads = place, "mask"
    if walk.shift:
        inside = rng.choice((f"(at + {walk.shift} >= 0) & (at + {walk.shift} < {end})", f"({place} + {walk.shift} >= 0) & ({place} + {walk.shift} < {total})"))
        read, reads = f"{place} + {walk.shift}", f"mask & {inside}"
    lines.append(f"{indent}x = tl.load(X + {read}, mask={reads}, other=0.0)")
    lines.append(f"{indent}tl.store(Y + {out}, x * 2.0 + 1.0, mask=mask)")
    text = "import triton\nimport triton.language as tl\n\n\n@triton.jit\ndef walk(X, Y, " + ", ".join(names) + ", BLOCK: tl.constexpr):\n"
    text += "".join(f"    {line}\n" for line in lines)
    factors = tuple(f for _, e in walk.axes for f in e)
    memories = {"X": Memory(factors), "Y": Memory(tuple(f for k in walk.order for f in walk.axes[k][1]), written=True)}
    return Kernel("triton", "walk", text, "walk", memories, tuple(grid or ["1"]), sized(rng, names, MOST, steps), bounded(rng, names, steps),
                  {"BLOCK": block}, {name: name for name in names})


def cuda(rng: Random) -> Kernel:
    """The walk as CUDA: each lane's elements strided by the threads of a CTA."""
    walk, names, steps = drawn(rng)
    integer = rng.choice(("int", "int", "unsigned", "long long"))
    lines: list[str] = []
    grid: list[str] = []
    own: dict[int, str] = {}
    for k, (kind, extent) in sorted(enumerate(walk.axes), key=lambda axis: axis[1][0] != "grid"):
        if kind == "grid":
            lines.append(f"const {integer} i{k} = blockIdx.{'xyz'[len(grid)]};")
            grid.append(str(product(extent)))
            own[k] = f"i{k}"
        elif kind != "lane":
            lines.append(f"for ({integer} i{k} = 0; i{k} < {product(extent)}; ++i{k})")
            own[k] = f"i{k}"
    lane = len(walk.axes) - 1
    end = str(product(walk.axes[lane][1]))
    own[lane] = "at"
    names_of = tuple(own[k] for k in range(len(walk.axes)))
    place = index(walk.strides(tuple(range(len(walk.axes)))), names_of)
    out = index(walk.strides(walk.order), names_of)
    total = " * ".join(str(product(e)) for _, e in walk.axes)
    lines.append(f"for ({integer} at = threadIdx.x; at < {end}; at += blockDim.x) {{")
    if walk.shift:
        inside = rng.choice((f"at + {walk.shift} < {end} && at + {walk.shift} >= 0", f"{place} + {walk.shift} < {total} && {place} + {walk.shift} >= 0"))
        if integer == "unsigned":
            inside = inside.split(" && ")[0]
        lines.append(f"  float x = {inside} ? X[{place} + {walk.shift}] : 0.f;")
    elif rng.random() < 0.3:
        lines.append(f"  const float* from = X + ({place});\n    float x = *from;")
    else:
        lines.append(f"  float x = X[{place}];")
    lines.append(f"  Y[{out}] = x * 2.f + 1.f;\n  }}")
    text = "__global__ void walk(const float* X, float* Y, " + ", ".join(f"int {name}" for name in names) + ") {\n"
    text += "".join(f"  {line}\n" for line in lines) + "}\n"
    factors = tuple(f for _, e in walk.axes for f in e)
    memories = {"X": Memory(factors), "Y": Memory(tuple(f for k in walk.order for f in walk.axes[k][1]), written=True)}
    return Kernel("cuda", "walk", text, "walk", memories, tuple(grid or ["1"]), sized(rng, names, MOST, steps), bounded(rng, names, steps),
                  {"threads_x": 32}, {name: name for name in names})
