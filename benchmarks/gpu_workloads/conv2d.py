"""Convolutions of ResNet-50 and VGG in f16, channels last, beside the best of cuDNN's engines: all timed as graphs, in L2 and from memory.

The candidates of a shape are points of the pipelines below over the naive program (and a step more, `then`); the fastest of a shape is its row,
on each surface.
``python -m benchmarks.gpu_workloads.conv2d`` makes and compiles all of them beforehand.
"""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from benchmarks.gpu_workloads.running.asking import EARLY, KNOWN, SIZED, ask_words, asked, fastest_titles, worth
from benchmarks.gpu_workloads.running.launching import compiled, compiled_for, launcher
from benchmarks.gpu_workloads.running.measuring import Case, begun, fastest
from benchmarks.gpu_workloads.running.replaying import HOT_CALLS, Made, at_sizes, copies, early, kept, replayed
from kir.base.diagnostic import KirError
from kir.gate.gpu.images.executable import Executable
from kir.hardware.device.libcuda import CudaError
from kir.hardware.device.turns import Turns
from kir.hardware.target import target
from kir.ir.nodes import Program
from kir.ir.parser import parse_program
from kir.learning.tune.rank import promised
from kir.learning.tune.space import find_space
from kir.rewrite import Context, Pipeline, run

Kind = tuple[int, int]
"""Taps along each side, and the stride; padding keeps the middle tap inside."""
Shape = tuple[int, int, int, int, int, Kind]
"""Images, height, width, channels, filters and the kind of filter."""
SHAPES: tuple[Shape, ...] = (
    (8, 56, 56, 64, 128, (3, 1)),
    (32, 56, 56, 64, 64, (1, 1)),
    (32, 56, 56, 64, 256, (1, 1)),
    (32, 56, 56, 256, 64, (1, 1)),
    (32, 14, 14, 1024, 256, (1, 1)),
    (32, 7, 7, 512, 2048, (1, 1)),
    (32, 56, 56, 64, 64, (3, 1)),
    (32, 28, 28, 128, 128, (3, 1)),
    (32, 14, 14, 256, 256, (3, 1)),
    (32, 7, 7, 512, 512, (3, 1)),
    (32, 56, 56, 128, 128, (3, 2)),
    (32, 28, 28, 256, 256, (3, 2)),
    (32, 56, 56, 256, 512, (1, 2)),
    (8, 224, 224, 64, 64, (3, 1)),
    (8, 112, 112, 128, 128, (3, 1)),
    (8, 56, 56, 256, 256, (3, 1)),
    (8, 28, 28, 512, 512, (3, 1)),
    (8, 14, 14, 512, 512, (3, 1)),
    (4, 56, 56, 64, 128, (3, 1)),
    (16, 56, 56, 64, 128, (3, 1)),
)
"""Images, height, width, channels, filters and the kind of filter: the problem's own shape, ResNet-50's, VGG's, the first with half and twice the images."""
TRIED = (
    "conv2d_sm90 rows=192 columns=128 stages=4 raster=8 rounds=2",
    "conv2d_sm90 rows=192 columns=64 stages=6 raster=8 rounds=1",
    "conv2d_sm90 rows=192 columns=192 stages=4 raster=8 rounds=3",
    "conv2d_sm90 rows=128 columns=128 stages=6 raster=8 rounds=2",
    "conv2d_sm90 rows=128 columns=256 stages=4 raster=8 rounds=4",
    "conv2d_sm90 rows=256 columns=128 stages=4 raster=8 rounds=2",
    "conv2d_sm90 rows=256 columns=64 stages=4 raster=8 rounds=1",
    "conv2d_sm90_pingpong rows=64 columns=128 stages=8 raster=8 rounds=1",
    "conv2d_sm90_pingpong rows=64 columns=256 stages=4 raster=8 rounds=2",
    "conv2d_sm90_pingpong rows=128 columns=64 stages=8 raster=8 rounds=1",
    "conv2d_sm90_pingpong rows=128 columns=128 stages=5 raster=8 rounds=1",
    "conv2d_sm90_split rows=192 columns=128 stages=3 parts=2",
    "conv2d_sm90_split rows=128 columns=128 stages=4 parts=2",
    "conv2d_sm90_split rows=64 columns=256 stages=3 parts=2",
    "conv2d_sm90_once rows=128 columns=128 stages=6 rounds=2",
    "conv2d_sm90_once rows=128 columns=128 stages=2 rounds=2",
    "conv2d_sm90_once rows=128 columns=256 stages=4 rounds=4",
    "conv2d_sm90_once rows=128 columns=64 stages=3 rounds=1",
    "conv2d_sm90_once rows=192 columns=64 stages=6 rounds=1",
    "conv2d_sm90_once rows=256 columns=128 stages=4 rounds=2",
    "conv2d_sm90_once rows=64 columns=256 stages=5 rounds=2",
    "conv2d_sm90_once rows=64 columns=128 stages=8 rounds=1",
    "conv2d_sm90_once rows=64 columns=128 stages=4 rounds=2",
    "conv2d_sm90_once rows=64 columns=64 stages=6 rounds=1",
    "conv2d_sm90_wide rows=96 columns=128 stages=6",
    "conv2d_sm90_wide rows=96 columns=128 stages=7",
    "conv2d_sm90_wide rows=208 columns=128 stages=4",
    "conv2d_sm90_wide rows=112 columns=128 stages=6",
    "conv2d_sm80 rows=128 columns=128",
    "conv2d_sm80 rows=128 columns=64",
    "conv2d_sm80 rows=64 columns=64",
    "conv2d_triton rows=128 columns=128 stages=3 threads=256",
    "conv2d_triton rows=128 columns=64 stages=4 threads=128",
    "conv2d_triton rows=128 columns=256 stages=3 threads=256",
    "conv2d_triton rows=64 columns=128 stages=4 threads=128",
    "conv2d_tilelang rows=128 columns=128 stages=3 threads=256",
    "conv2d_tilelang rows=128 columns=64 stages=4 threads=128",
    "conv2d_tilelang rows=128 columns=256 stages=3 threads=256",
    "conv2d_tilelang rows=64 columns=128 stages=4 threads=128",
    "conv2d_tilelang_roles rows=192 columns=128 stages=4 raster=8 rounds=2",
    "conv2d_tilelang_roles rows=192 columns=64 stages=6 raster=8 rounds=1",
    "conv2d_tilelang_roles rows=128 columns=128 stages=6 raster=8 rounds=2",
    "conv2d_tilelang_roles rows=256 columns=128 stages=4 raster=8 rounds=2",
    "conv2d_tilelang_roles rows=128 columns=256 stages=4 raster=8 rounds=4",
    "conv2d_tilelang_pingpong rows=64 columns=128 stages=8 raster=8 rounds=1",
    "conv2d_tilelang_pingpong rows=64 columns=256 stages=4 raster=8 rounds=2",
    "conv2d_tilelang_pingpong rows=128 columns=64 stages=8 raster=8 rounds=1",
    "conv2d_tilelang_pingpong rows=128 columns=128 stages=5 raster=8 rounds=1",
    "conv2d_tilelang_once rows=128 columns=128 stages=6 rounds=2",
    "conv2d_tilelang_once rows=64 columns=256 stages=5 rounds=2",
    "conv2d_tilelang_once rows=64 columns=128 stages=8 rounds=1",
    "conv2d_tilelang_once rows=64 columns=128 stages=4 rounds=2",
)
SMS, LONG = 132, 4
"""Multiprocessors of the device that the points are for, and steps of k from which a tile's first copy is a small part of it."""
FLAT = "tma-load@main/c_loop/xm"
"""Of one tap without a stride pixels are rows of a matrix, of which Triton copies boxes too."""
STAYING = f"{FLAT}; linear-grid{{rows_first=false}}@main; persistent{{ctas=%d capped=true}}@main; surface-option{{option=flatten value=\"true\"}}@main/pid"
"""There CTAs that stay, so many of them, make a descriptor once for many tiles of few steps."""
FILTERS_FIRST = "linear-grid{rows_first=false}@main"
"""CTAs beside one another then read the same pixels."""
LATE = "programmatic-dependent-launch{wait=0 trigger=last}@main"
"""The next kernel begins before the last store, where it would be in the way before."""
IN_ORDERS = ("", f"; {FILTERS_FIRST}", f"; {FILTERS_FIRST}; {LATE}")
ROWS_OF_PIXELS = (
    *(f"conv2d_triton {tile} then {FLAT}" for tile in (
        "rows=128 columns=128 stages=3 threads=256", "rows=128 columns=64 stages=4 threads=128", "rows=128 columns=256 stages=3 threads=256",
        "rows=64 columns=128 stages=4 threads=128", "rows=128 columns=128 stages=3 threads=128")),
    *(f"conv2d_triton {tile} then {STAYING % ctas}" for tile, ctas in (
        ("rows=128 columns=128 stages=2 threads=256", 2 * SMS), ("rows=128 columns=64 stages=4 threads=128", 2 * SMS),
        ("rows=128 columns=64 stages=2 threads=128", 3 * SMS), ("rows=128 columns=256 stages=3 threads=256", SMS),
        ("rows=256 columns=64 stages=4 threads=256", SMS), ("rows=256 columns=128 stages=2 threads=256", SMS))),
    *(f"conv2d_triton {tile} then {FLAT}; swap-operands@main/c_loop/mma{order}" for order in IN_ORDERS for tile in (
        "rows=128 columns=128 stages=3 threads=128", "rows=128 columns=128 stages=2 threads=128", "rows=64 columns=128 stages=4 threads=128")),
    *(f"conv2d_deep_triton {tile} then {FLAT}{order}" for order in IN_ORDERS for tile in (
        "rows=64 high=1 images=1 columns=128 stages=4 threads=128", "rows=64 high=1 images=1 columns=128 stages=2 threads=128",
        "rows=128 high=1 images=1 columns=128 stages=3 threads=128", "rows=128 high=1 images=1 columns=64 stages=4 threads=128")),
)
TURNS = STAYING.removeprefix(f"{FLAT}; ")
OF_BOXES = (
    ("boxes", 128, "columns=128 stages=3 threads=256", 2), ("boxes", 128, "columns=128 stages=3 threads=128", 2),
    ("boxes", 128, "columns=128 stages=6 threads=256", 1), ("boxes", 128, "columns=64 stages=4 threads=128", 2),
    ("boxes", 128, "columns=64 stages=8 threads=128", 1), ("boxes", 256, "columns=128 stages=4 threads=256", 0),
    ("boxes", 256, "columns=64 stages=2 threads=128", 2), ("boxes", 256, "columns=64 stages=4 threads=256", 1),
    ("boxes", 256, "columns=128 stages=3 threads=256", 1), ("boxes", 128, "columns=256 stages=4 threads=256", 0),
    ("boxes", 64, "columns=128 stages=8 threads=128", 1), ("boxes", 64, "columns=256 stages=5 threads=128", 0),
    ("boxes", 128, "columns=128 stages=2 threads=128", 0), ("boxes", 64, "columns=128 stages=2 threads=128", 0),
    ("deep", 64, "columns=128 stages=4 threads=128", 0), ("joined", 64, "columns=128 stages=2 threads=128 count=3", 0),
    ("joined", 64, "columns=128 stages=5 threads=128 count=3", 0), ("joined", 64, "columns=256 stages=4 threads=256 count=3", 0),
    ("joined", 128, "columns=64 stages=2 threads=128 count=2", 2), ("joined", 128, "columns=64 stages=4 threads=256 count=3", 0),
    ("joined", 128, "columns=64 stages=2 threads=256 count=3", 0), ("joined", 128, "columns=128 stages=4 threads=256 count=2", 0))
"""The pipeline, pixels of a box, the rest of a point, and CTAs of a multiprocessor that stay: none where what they store does not fit beside the stages."""


def boxed(pixels: int, shape: Shape) -> str:
    """What a point says of the box of which most lies in the images, of the fewest of them, the nearest to a square."""
    n, h, w, _, _, (_, stride) = shape
    sides = n, -(-h // stride), -(-w // stride)

    def left(box: tuple[int, int, int]) -> tuple[int, int, int]:
        return math.prod(-(-side // x) * x for side, x in zip(sides, box, strict=True)), box[0], abs(box[1] - box[2])

    powers = [1 << k for k in range(6)]
    image, high, _ = min(((i, up, pixels // (i * up)) for i in powers for up in powers[:5] if pixels >= i * up), key=left)
    return f"rows={pixels} high={high} images={image}"


def ordered(ctas: int) -> tuple[str, ...]:
    """What of a point with so many CTAs of a multiprocessor that stay is tried: the order of its CTAs, that they stay, and when the next kernel begins."""
    more = [LATE, FILTERS_FIRST, f"{FILTERS_FIRST}; {LATE}"] + ([TURNS % (ctas * SMS)] if ctas else [])
    steps = ("", *(f" then {x}" for x in more))
    return (*steps, *(f"{x}{EARLY}" for x in steps if LATE not in x))


BOXES = tuple(dict.fromkeys(f"conv2d_{of}_triton {boxed(pixels, shape)} {rest}{way}" for shape in SHAPES if shape[5] != (1, 1)
                            for of, pixels, rest, ctas in OF_BOXES for way in ordered(ctas)))
"""Triton copies boxes of images too."""


def sized(point: str) -> str:
    """A point where sizes are numbers, by its title."""
    return f"{point.removesuffix(EARLY)}{SIZED}{EARLY if point.endswith(EARLY) else ''}"


IN_TURN = tuple(f"{point} then alternate-stores@main/roles/consumer/wg/i_1/h" for point in (
    "conv2d_sm90 rows=192 columns=128 stages=4 raster=8 rounds=2", "conv2d_sm90 rows=128 columns=128 stages=5 raster=8 rounds=2"))
"""What is stored of a tile goes through places that take turns."""
FETCHED = "prefetch-descriptors@main"
AT_SIZES = tuple(f"{point}{SIZED}" for point in (
    f"conv2d_sm90_pingpong rows=128 columns=128 stages=5 raster=8 rounds=1 then {FETCHED}",
    f"conv2d_sm90_pingpong rows=128 columns=64 stages=8 raster=8 rounds=1 then {FETCHED}",
    f"conv2d_sm90 rows=128 columns=256 stages=4 raster=8 rounds=4 then {FETCHED}",
    f"conv2d_sm90 rows=192 columns=128 stages=4 raster=8 rounds=2 then {FETCHED}",
    "conv2d_sm90_wide rows=96 columns=128 stages=6", "conv2d_sm90_wide rows=96 columns=128 stages=7", "conv2d_sm90_wide rows=208 columns=128 stages=4",
    "conv2d_sm90_once rows=64 columns=128 stages=8 rounds=1", "conv2d_sm90_once rows=128 columns=256 stages=4 rounds=4"))
PLAIN = (*TRIED, *IN_TURN, *AT_SIZES, *ROWS_OF_PIXELS)
WHOLE = (*PLAIN, *BOXES, *(f"{point}{EARLY}" for point in PLAIN if "_tilelang rows" not in point and LATE not in point))
TRITON_AT_SIZES = tuple(sized(point) for point in WHOLE if "_triton" in point)
"""Triton's, where sizes are numbers: there are as many as of the others, so that where all are tried those are that were the fastest of a row."""
POINTS = (*WHOLE, *TRITON_AT_SIZES)
"""Those that were the fastest of a row once, or might be, and those of them that begin early."""
OF_ROWS = ("cuda", "cuda, sm_80", "triton", "tilelang")
"""What has a row of its own: each surface, and CUDA's code for sm_80, which later devices run too."""
MOST_WRONG = 2e-3
"""The norm of an error over that of the result, which is rounded to 11 bits."""


def cases() -> Iterator[Case]:
    """Each shape, in L2 and from memory."""
    made = prepared()
    for n, h, w, c, f, kind in asked(SHAPES, name):
        yield from _cases(n, h, w, c, f, kind, made)


Key = tuple[Kind, str, tuple[int, ...]]
"""A kind of filter, a point, and the sizes that it is compiled for: those of TileLang, whose launcher takes them, and of Triton, whose looks at them."""


def prepared() -> dict[Key, Made]:
    """All candidates, compiled; TileLang's compiler is the slowest."""
    keys = dict.fromkeys(key(point, s) for s in asked(SHAPES, name) for point in POINTS if suits(point, *s))
    return kept("conv2d", sorted(keys, key=lambda k: surface(k[1]) != "tilelang"), candidate, executable)


def key(point: str, shape: tuple[int, int, int, int, int, Kind]) -> Key:
    """What a candidate at a shape is kept by."""
    *sizes, kind = shape
    return kind, point, tuple(sizes) if surface(point) != "cuda" or SIZED in point else ()


def surface(point: str) -> str:
    """Of a point's pipeline."""
    return find_space(point.split()[0]).surface


def _of_row(point: str) -> str:
    return f"{surface(point)}{', sm_80' if '_sm80' in point else ''}"


def executable(of: Key, program: Program) -> Executable:
    """What a candidate is compiled to. Raises KirError."""
    (taps, stride), point, sizes = of
    if surface(point) == "cuda":
        return compiled(program, surface(point))
    n, h, w, c, f = sizes
    out = (n, -(-h // stride), -(-w // stride), f)
    return compiled_for(program, surface(point), dict(zip("NHWCF", sizes, strict=True)),
                        {"X": (n, h, w, c), "Wt": (f, taps, taps, c) if taps > 1 else (f, c), "Y": out})


def name(shape: Shape) -> str:
    """What a row calls a shape."""
    n, h, w, c, f, (taps, stride) = shape
    return f"N{n} {h}x{w} C{c} F{f} {taps}x{taps} /{stride}"


def suits(point: str, n: int, h: int, w: int, c: int, f: int, kind: Kind) -> bool:
    """Whether a point is tried at a shape: its tiles are no wider than the filters; the sum is split, and a CTA has one tile alone, where there are few."""
    if not worth("conv2d", point, name((n, h, w, c, f, kind))) or (point in TRITON_AT_SIZES and not KNOWN and point not in fastest_titles("conv2d")):
        return False
    (taps, stride), at = kind, _settings(point)
    point = point.replace(SIZED, "") if point in TRITON_AT_SIZES else point
    flat = point.removesuffix(EARLY) in ROWS_OF_PIXELS
    if flat and (kind != (1, 1) or (c % 128 and "_deep" in point)):
        return False
    if point in BOXES and (kind == (1, 1) or f" {boxed(at['rows'], (n, h, w, c, f, kind))} " not in point or (c % 128 and "_deep" in point)):
        return False
    tiles = -(-n * -(-h // stride) * -(-w // stride) // at["rows"]) * -(-f // at["columns"])
    steps, parts = taps * taps * c // 64, at.get("parts", 1)
    stays = " then " in point and not flat and point not in BOXES and point.removesuffix(EARLY) not in (*IN_TURN, *AT_SIZES)
    few = "_multicast rows=64" in point or "_once" in point or "_wide" in point or (stays and steps > LONG)
    if at["columns"] > f or (few and tiles > 2 * SMS):
        return False
    return parts == 1 or (tiles * parts <= 2 * SMS and steps >= 4 * parts)


def _settings(point: str) -> dict[str, int]:
    plain = point.removesuffix(EARLY).removesuffix(SIZED).partition(" then ")[0]
    return {name: int(value) for name, value in (x.split("=") for x in plain.split()[1:])}


def naive(kind: Kind) -> str:
    """The naive convolution by such a filter, one thread an output."""
    taps, stride = kind
    high, wide = (f"ceildiv({d}, {stride})" if stride > 1 else d for d in "HW")
    sides = [f"  @{v}_loop for {v} in 0..{taps}\n" for v in "rs"] if taps > 1 else []
    nest = "".join("  " * i + s for i, s in enumerate([*sides, "  @c_loop for c in 0..C\n"]))
    place = [f"{f'{x} * {stride}' if stride > 1 else x}{f' + {v} - {taps // 2}' if taps > 1 else ''}" for x, v in (("p", "r"), ("q", "s"))]
    filters, at = (f"F, {taps}, {taps}, C", "f, r, s, c") if taps > 1 else ("F, C", "f, c")
    image = f"X[image, {place[0]}, {place[1]}, c]"
    loaded = f"load({image} else 0.0:f16 clip)" if kind != (1, 1) else image
    sizes = "".join(f"  size {d}: i32\n" for d in "NHWCF")
    return (
        f"kir 1\nprogram conv2d\n{sizes}  in X: f16[N, H, W, C]\n  in Wt: f16[{filters}]\n  out Y: f16[N, {high}, {wide}, F]\n"
        f"  fact C % 64 == 0\n  fact F % 8 == 0\nkernel main grid (f: F, q: {wide}, y: {high} * N) threads 1\n"
        f"  let image = y // {f'({high})' if stride > 1 else high}\n  let p = y % {f'({high})' if stride > 1 else high}\n  register acc: f32 = 0.0\n{nest}"
        f"{'  ' * (len(sides) + 2)}acc = acc + cast({loaded}, f32) * cast(Wt[{at}], f32)\n  @store_Y Y[image, p, q, f] = cast(acc, f16)\n"
    )


@early
def candidate(of: Key) -> Program:
    """A kind of convolution by a point of a pipeline. Raises KirError where a step does not apply."""
    kind, point, sizes = of
    point = point.removesuffix(SIZED)
    space = find_space(point.split()[0])
    values = space.values(_settings(point), {"dtype": "f16", "sms": SMS, "shared": 232448})
    filled = space.filled(values) if kind[0] > 1 else space.filled(values).replace("carry-digits@main/c_loop;\n", "")  # of one tap there are no digits
    if kind == (1, 1):  # nor boxes: pixels are rows
        filled = re.sub(r"box-pixels\{.*\}@main;\n|tma-load@main/c_loop/box;\n", "", filled)
    steps = "; ".join(x for x in (filled, point.partition(" then ")[2]) if x)
    even = ("H % 2 == 0", "W % 2 == 0") if " high=" in point and kind[1] > 1 else ()
    told = promised(parse_program(naive(kind)), (*space.facts, *even), space.align)
    made = run(told, Pipeline.parse(steps, str(space.file)), Context(target("sm_90a"))).program
    return at_sizes(made, dict(zip("NHWCF", sizes, strict=True))) if SIZED in of[1] else made


def _cases(n: int, h: int, w: int, c: int, f: int, kind: Kind, made: dict[Key, Made]) -> Iterator[Case]:
    import torch

    torch.backends.cudnn.benchmark, torch.backends.cudnn.benchmark_limit = True, 0  # all engines that take the shape
    taps, stride = kind
    p, q = (-(-d // stride) for d in (h, w))
    generator = torch.Generator("cuda").manual_seed(0)
    x = torch.randn(n, h, w, c, device="cuda", dtype=torch.float16, generator=generator)
    weights = torch.randn(f, taps, taps, c, device="cuda", dtype=torch.float16, generator=generator)
    count = copies(2.0 * (x.numel() + weights.numel() + n * p * q * f))
    sets = [(x.clone(), weights.clone(), torch.empty(n, p, q, f, device="cuda", dtype=torch.float16)) for _ in range(count)]

    def cudnn(a: Any, b: Any) -> Any:
        return torch.nn.functional.conv2d(a.permute(0, 3, 1, 2), b.permute(0, 3, 1, 2), stride=stride, padding=taps // 2).permute(0, 2, 3, 1)

    def chosen(used: Sequence[tuple[Any, Any, Any]]) -> Callable[[], Any]:
        """cuDNN by the faster of two choices among its engines, each made while nobody else uses the GPU: what has no bearing on f16 asks for another one."""
        found: dict[str, Callable[[], Any]] = {}
        for tf32 in (True, False):
            torch.backends.cudnn.allow_tf32 = tf32
            with Turns.of().alone():
                cudnn(*used[0][:2])
                torch.cuda.synchronize()
            found[str(len(found))] = replayed([lambda s=s: cudnn(s[0], s[1]) for s in used])  # type: ignore[misc]  # a default binds it
        return found[fastest(found)]

    want = cudnn(x, weights).float()
    length = float(want.norm())

    def wrong(out: Any) -> str:
        far = float((out.float() - want).norm()) / length
        for _, _, y in sets:
            y.fill_(float("nan"))
        return "" if far < MOST_WRONG else f"off by {far:.3g} of the result"

    missing: dict[str, str] = {}
    tried = tuple(p for p in POINTS if suits(p, n, h, w, c, f, kind))
    sizes = {"N": n, "H": h, "W": w, "C": c, "F": f}
    for hot in (True, False):
        used = [sets[0]] * HOT_CALLS if hot else sets
        ways: dict[str, Callable[[], Any]] = {"cuDNN": chosen(used)}
        ours: dict[str, Callable[[], Any]] = {}
        for point in tried:
            found = made[key(point, (n, h, w, c, f, kind))]
            try:
                if isinstance(found, str):
                    raise OSError(found)
                begun(point)
                calls = []
                for a, b, y in used[: 1 if hot else None]:
                    call = launcher(found[0], {"X": a, "Wt": b if taps > 1 else b.view(f, c), "Y": y}, sizes, executable=found[1])
                    calls.append(lambda call=call, y=y: (call(), y)[1])
                way = replayed(calls * HOT_CALLS if hot else calls)
                if said := wrong(way()):
                    raise OSError(said)
                ours[point] = way
            except (KirError, CudaError, OSError) as refused:
                missing[point] = str(refused).splitlines()[0]
        named = [fastest(of, 5) for x in OF_ROWS if (of := {p: way for p, way in ours.items() if _of_row(p) == x})]
        ways |= {name: ours[name] for name in named}
        shape = f"{name((n, h, w, c, f, kind))}, {'in L2' if hot else 'from memory'}"
        yield Case("conv2d", shape, ways, (*named, *missing), wrong, 2.0 * n * p * q * f * c * taps * taps, dict(missing), len(used))


if __name__ == "__main__":
    ask_words(sys.argv[1:])
    prepared()
