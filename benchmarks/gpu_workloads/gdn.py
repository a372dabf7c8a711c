"""The gated delta rule, forward, with heads of 128, beside FLA and FlashQLA: the experts on CUDA and Triton, which are what the stored
pipelines make of the naive program, and what the pipeline for TileLang makes of it.

The result of each way is compared with a run in float64, token by token, within the problem's own bound. All are timed as graphs where a graph takes them.
``python -m benchmarks.gpu_workloads.gdn`` makes and compiles ours beforehand.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

from benchmarks.gpu_parts.session import ROOT
from benchmarks.gpu_workloads.running.asking import ask_words, asked
from benchmarks.gpu_workloads.running.launching import compiled, compiled_for, launcher
from benchmarks.gpu_workloads.running.measuring import Case, begun
from benchmarks.gpu_workloads.running.replaying import Made, graphed, kept, replayed
from kir.base.diagnostic import KirError
from kir.gate.gpu.images.executable import Executable
from kir.hardware.device.libcuda import CudaError
from kir.hardware.device.turns import Turns
from kir.hardware.target import target
from kir.ir.nodes import Program
from kir.ir.parser import parse_program
from kir.learning.tune.rank import built, promised
from kir.learning.tune.space import find_space
from kir.problem import load_problem

SHAPES = ((1, 4096, 16, 3), (4, 1024, 16, 3), (1, 8192, 16, 3), (1, 1000, 16, 3), (2, 2048, 16, 1))
"""B, L, the heads of q and k, and how many heads of v each serves."""
Shape = tuple[int, int, int, int]
Kernel = tuple[str, str, Shape | None]
"""The name of an expert's file, or of a pipeline, with `one` for the form with one warpgroup in the recurrence, and what else is set; the surface that it is
written to, and the shape for TileLang, whose launcher takes sizes."""
KERNELS: tuple[Kernel, ...] = (("gdn_d128_sm90", "cuda", None), ("gdn_d128_sm90_pair", "cuda", None), ("gdn_d128", "triton", None),
                               ("gdn_d128 one", "triton", None),
                               *((f"gdn_d128_boxes one registers={most} stages={stages}", "triton", None)
                                 for most, stages in ((168, 3), (168, 4), (255, 3), (168, 2))),
                               *((f"gdn_d128_tilelang{form}", "tilelang", shape) for shape in SHAPES for form in ("", " one")),
                               *(("gdn_d128_roles_tilelang roles", "tilelang", shape) for shape in SHAPES))
ROUNDOFF = 2.0**-8
"""The unit roundoff of bf16."""
ALIGN = 16
"""Bytes that tensors are aligned to, as the pipelines ask that make the experts."""
FOREIGN = 4.0
"""How many of our bounds a reference may be away: its roundings are its own affair."""


def cases() -> Iterator[Case]:
    """Each shape."""
    made = prepared()
    for b, length, h, g in asked(SHAPES, name):
        yield _case(b, length, h, g, made)


def prepared() -> dict[Kernel, Made]:
    """All kernels, compiled."""
    shapes = asked(SHAPES, name)
    wanted = [k for k in KERNELS if k[2] is None or k[2] in shapes]
    made = kept("gdn", wanted, program, executable)
    return {k: made[k] for k in wanted}


def name(shape: Shape) -> str:
    """What a row calls a shape."""
    b, length, h, g = shape
    return f"B{b} L{length} {h} heads of q and k, {h * g} of v, d128"


def program(kernel: Kernel) -> Program:
    """An expert's program, or what a pipeline makes of the naive one. Raises KirError where a step does not apply."""
    name, *words = kernel[0].split()
    if kernel[2] is not None or words:
        space, problem = find_space(name if kernel[2] else f"{name}_{kernel[1]}"), load_problem("gdn_d128")
        settings = {key: int(value) for key, value in (w.split("=") for w in words[1:])}
        return built(space, space.values({"form": (*words, "tiles")[0], **settings}, {"dtype": "bf16"}), problem, target("h200"))
    file = ROOT / "skills" / "experts" / "gdn" / f"{kernel[0]}.kir"
    return promised(parse_program(file.read_text(), str(file)), (), ALIGN)


def executable(kernel: Kernel, program: Program) -> Executable:
    """A kernel's program, compiled for its surface. Raises KirError."""
    if kernel[2] is None:
        return compiled(program, kernel[1])
    b, length, h, g = kernel[2]
    keys, values, gates = (b, length, h, 128), (b, length, h * g, 128), (b, length, h * g)
    shapes = {"q": keys, "k": keys, "v": values, "o": values, "g": gates, "beta": gates}
    return compiled_for(program, kernel[1], {"B": b, "L": length, "H": h, "G": g}, shapes)


def _case(b: int, length: int, h: int, g: int, made: dict[Kernel, Made]) -> Case:
    import torch

    tensors = _inputs(b, length, h, g)
    o = torch.empty_like(tensors["v"])
    with Turns.of().alone():  # many small kernels, which another process would see in what it times
        want, bound = _exact(**tensors)
    ways: dict[str, Callable[[], Any]] = {}
    missing: dict[str, str] = {}
    for reference, make in _references(tensors).items():
        try:
            call = make()
            call()
            ways |= graphed({reference: call})
        except Exception as absent:
            missing[reference] = f"{type(absent).__name__}: {str(absent).splitlines()[0] if str(absent) else ''}"
    ours = []
    for kernel, found in made.items():
        if kernel[2] not in (None, (b, length, h, g)):
            continue
        way = f"{kernel[0]}, {kernel[1]}"
        ours.append(way)
        try:
            if isinstance(found, str):
                raise OSError(found)
            begun(way)
            run = launcher(found[0], {**tensors, "o": o}, {"B": b, "L": length, "H": h, "G": g}, executable=found[1])
            ways[way] = replayed([_writing(run, o)])
        except (KirError, CudaError, OSError) as refused:
            missing[way] = str(refused).splitlines()[0]

    def wrong(out: Any) -> str:
        foreign = out is not o
        far = float(((out.double().reshape(want.shape) - want).abs() / bound).max())
        o.fill_(float("nan"))
        return "" if far <= (FOREIGN if foreign else 1) else f"{far:.3g} times the error bound from the run in float64"

    work = 2.0 * b * h * g * length * (3 * 128 * 128 + 2 * 64 * 128 + 2 * 64 * 128)
    return Case("gdn", name((b, length, h, g)), ways, tuple(ours), wrong, work, missing)


def _inputs(b: int, length: int, h: int, g: int) -> dict[str, Any]:
    """Keys of length one, gates as of a trained model: the logarithm of a sigmoid."""
    import torch

    generator = torch.Generator("cuda").manual_seed(0)

    def normal(*shape: int) -> Any:
        return torch.randn(*shape, device="cuda", generator=generator)

    return {
        "q": normal(b, length, h, 128).bfloat16(),
        "k": torch.nn.functional.normalize(normal(b, length, h, 128), dim=-1).bfloat16(),
        "v": normal(b, length, h * g, 128).bfloat16(),
        "g": torch.nn.functional.logsigmoid(normal(b, length, h * g)),
        "beta": torch.rand(b, length, h * g, device="cuda", generator=generator),
    }


def _exact(q: Any, k: Any, v: Any, g: Any, beta: Any) -> tuple[Any, Any]:
    """What the rule gives in float64, and how far a result in bf16 may be from it: the bound of skills/problems/gdn_d128 for keys that meet queries at
    the usual cosine."""
    import torch

    q, k, v, g, beta = (x.double() for x in (q, k, v, g, beta))
    q, k = (x.repeat_interleave(v.shape[2] // x.shape[2], 2) for x in (q, k))
    decay, lengths = g.exp(), k.square().sum(-1, keepdim=True)
    state = torch.zeros(v.shape[0], v.shape[2], 128, 128, device="cuda", dtype=torch.float64)
    spread = torch.zeros(v.shape[0], v.shape[2], 128, device="cuda", dtype=torch.float64)
    out, scale = torch.empty_like(v), torch.empty_like(v)
    for t in range(v.shape[1]):
        state = state * decay[:, t, :, None, None]
        update = beta[:, t, :, None] * (v[:, t] - torch.einsum("bhd,bhde->bhe", k[:, t], state))
        state = state + k[:, t, :, :, None] * update[:, :, None, :]
        out[:, t] = torch.einsum("bhd,bhde->bhe", q[:, t], state)
        spread = (decay[:, t, :, None] * spread).square() + lengths[:, t] * (update.square() + (beta[:, t, :, None] * v[:, t]).square())
        spread = spread.sqrt()
        scale[:, t] = spread + state.square().sum(-2).sqrt()
    out = out * 128**-0.5
    scale = scale * q.square().sum(-1, keepdim=True).sqrt() / 128
    return out, 1.01 * ROUNDOFF * out.abs() + (5 * ROUNDOFF + 4 * (v.shape[1] + 128) * 2.0**-24) * scale + 1e-30


def _references(t: dict[str, Any]) -> dict[str, Callable[[], Callable[[], Any]]]:
    """Makers of the calls, by the names of their packages. FLA takes one head of q and k for each of v; what repeats them is not timed."""

    def fla() -> Callable[[], Any]:
        with suppress(ImportError):
            importlib.import_module("tilelang")  # without it FLA goes by slow kernels
        rule = importlib.import_module("fla.ops.gated_delta_rule").chunk_gated_delta_rule
        times = t["v"].shape[2] // t["q"].shape[2]
        q, k = (t[x].repeat_interleave(times, 2) for x in ("q", "k"))
        return _quiet(lambda: rule(q, k, t["v"], t["g"], t["beta"])[0])

    def qla() -> Callable[[], Any]:
        rule = importlib.import_module("flash_qla").chunk_gated_delta_rule

        def call() -> Any:
            out = rule(t["q"], t["k"], t["v"], t["g"], t["beta"], scale=128**-0.5)
            return out[0] if isinstance(out, tuple) else out

        return _quiet(call)

    return {"FLA": fla, "FlashQLA": qla}


def _quiet(call: Callable[[], Any]) -> Callable[[], Any]:
    """The call without what a gradient would need."""
    import torch

    def quiet() -> Any:
        with torch.no_grad():
            return call()

    return quiet


def _writing(call: Callable[[], None], out: Any) -> Callable[[], Any]:
    def written() -> Any:
        call()
        return out

    return written


if __name__ == "__main__":
    from benchmarks.gpu_workloads import gdn

    ask_words(sys.argv[1:])
    gdn.prepared()  # by its own name: what is kept is read by other modules
