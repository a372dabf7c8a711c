"""A recorded call on a GPU: the package's own kernel and what was found, on copies of the same random arguments, compared, and timed in turns.

Each search has a process of its own for that, forked from one that has imported what all need: the device's context, the package and its own kernel are
made ready once. A candidate that goes wrong takes all of it down: that process ends with it, and the next candidate gets another.
"""
from __future__ import annotations

import atexit
import contextlib
import importlib
import importlib.util
import math
import os
import socket
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from functools import cache
from pathlib import Path
from typing import Any

from kir.base.dataclass import dataclass
from kir.base.diagnostic import KirError, error
from kir.gate.gpu.statistics import ratio
from kir.hardware.device import wire
from kir.hardware.device.client import Child, ChildGone, Server
from kir.hardware.device.turns import Turns
from kir.ir import nodes as n
from kir.ir.binding import Binding
from kir.ir.canonical import content_hash
from kir.ir.visit import walk
from kir.learning.corpus.launch import DTYPES, TRITON
from kir.learning.corpus.measured import Run, copied, difference, samples
from kir.learning.packages.calls import Call
from kir.learning.packages.twin import twin
from kir.learning.tune.search import Measured

KEPT = ("XDG_CACHE_HOME", "TRITON_CACHE_DIR", "TMPDIR", "CC", "CXX", "PYTHONPATH", "OMP_NUM_THREADS")
"""What of the environment a candidate's process needs besides what all get: the same caches, and the same turns on the device."""
WITHIN = 2e-3
"""The largest difference of a right result, as a share of the largest value: a pass may move roundings."""
SECONDS = 120.0
"""How long one candidate may take, compiling included."""


@dataclass(frozen=True)
class DeviceTask:
    """A program in the place of a recorded call, as what crosses to another process: the text of its twin, or why there is none."""

    place: str
    binding: str
    text: str
    same: bool
    reason: str
    of_program: str
    """The hash of the program's content."""
    added: tuple[str, ...] = ()
    """Tensors that the kernel as given adds to atomically, in fewer than 32 bits: what comes out depends on who is first."""
    again: bool = False
    """Whether it was right before and is judged on tensors that it has not seen."""

    @property
    def key(self) -> str:
        """The content hash, and the place."""
        return f"{self.of_program} {self.place}{' again' * self.again}"

    @classmethod
    def of(cls, call: Call, program: n.Program, given: n.Program) -> DeviceTask:
        """The task of judging a program; `given` is the kernel as it was launched."""
        binding, key = call.binding.read_text(encoding="utf-8"), content_hash(program)
        try:
            return cls(call.place, binding, twin(call, program, "").text, program == given, "", key, added_to(given))
        except KirError as bad:
            return cls(call.place, binding, "", False, f"{bad.diagnostics[0].id}: {bad.diagnostics[0].message}", key)


def tried_on_device(task: DeviceTask) -> dict[str, Any]:
    """What a device says of a task, as JSON: right where the package's own kernel is, for all of its outputs, and the median of its times beside that. The
    kernel as given has the time of the package's own. Raises KirError KIR-G004 where there is no device any more."""
    said: dict[str, Any] = {"failed": task.reason} if task.reason else _asked({k: v for k, v in asdict(task).items() if k != "reason"})
    if said.get("gone"):
        raise error("KIR-G004", f"the device is gone: {said['failed']}", needs="a GPU")
    if said.get("failed") or not said.get("right"):
        why = said.get("failed") or f"its outputs are off by {said['difference']:.1e} of the largest value"
        return Measured(math.inf, accepted=False, reason=str(why)).to_json()
    return {**Measured(said["seconds"], said["low"], said["high"]).to_json(), "ratio": said["ratio"]}


@dataclass
class DeviceJudge:
    """This process's GPU as a judge of programs in the place of a recorded call."""

    call: Call
    given: n.Program
    name: str = "gpu"
    measures: bool = True
    base: Measured | None = None
    """The kernel as given, once it was asked about."""

    def prepare(self, programs: object) -> None:
        """Nothing: Triton compiles in the process that runs a candidate."""

    def judge(self, program: n.Program, surface: str) -> Measured:
        """The word on one: the time of the kernel as given, as much smaller as the two were apart in turns; that time where they are not surely apart.
        Raises KirError KIR-G004."""
        said = tried_on_device(DeviceTask.of(self.call, program, self.given))
        return self._beside(program, said)

    def again(self, program: n.Program, surface: str) -> Measured:
        """The word on one that was right before, on other random tensors, timed once more. Raises KirError KIR-G004."""
        return self._beside(program, tried_on_device(replace(DeviceTask.of(self.call, program, self.given), again=True)))

    def _beside(self, program: n.Program, said: Mapping[str, Any]) -> Measured:
        found = Measured.from_json(said)
        if program == self.given:
            self.base = found if found.accepted else None
        elif found.accepted and self.base is not None:
            least, most = said["ratio"]["interval"]
            if least <= 1.0 <= most:
                return self.base
            middle, low, high = (float(f"{self.base.seconds / times:.6g}") for times in (said["ratio"]["median"], most, least))
            found = Measured(middle, low, high)
        return found


def added_to(program: n.Program) -> tuple[str, ...]:
    """Tensors of fewer than 32 bits that a program adds to atomically, in the order of its parameters: sums that round at each addition, in no order."""
    found = {a.buffer.name for x in walk(program) if isinstance(x, n.Call) and x.fn == "atomic_add" for a in x.args if isinstance(a, n.Region)
             if a.buffer.space == "global" and a.buffer.dtype.is_float and a.buffer.dtype.bits < 32}
    return tuple(p.name for p in program.params if p.name in found)


@dataclass
class Trials:
    """The process that answers one row after another; another one after a row that went wrong."""

    server: Server
    child: Child | None = None

    def ask(self, row: Mapping[str, Any]) -> dict[str, Any]:
        """What a process says of a row; `failed` and why where it says nothing."""
        said: dict[str, Any] = {}
        try:
            self.child = self.child or self.server.child()
            said = self.child.ask({"row": dict(row)}, seconds=SECONDS)[0]
        except ChildGone as gone:
            said = {"failed": f"it takes more than {SECONDS:g} s" if gone.how == "timeout" else gone.said}
        if not said.get("right"):
            self.close()
        return said

    def close(self) -> None:
        """End the process that answers."""
        if self.child is not None:
            self.child.close()
        self.child = None


def _asked(row: Mapping[str, Any]) -> dict[str, Any]:
    return _trials().ask(row)


@cache
def _trials() -> Trials:
    return Trials(_server())


@cache
def _server() -> Server:
    """Forks processes with torch and Triton imported and no device touched; ended with this process."""
    made = Server(f"{__name__}:serve", ["torch", "triton", __name__], {k: os.environ[k] for k in KEPT if k in os.environ})
    atexit.register(made.close)
    return made


def begin_imports() -> None:
    """Start what will judge: it imports torch and Triton while this process does something else."""
    _server()


def torch_dtype(name: str) -> Any:
    """torch's dtype of an IR dtype's name."""
    import torch

    return getattr(torch, {ours: theirs for theirs, ours in DTYPES.items()}[name])


def tensors_of(binding: Binding, device: str, seed: int = 0) -> dict[str, Any]:
    """A tensor for each of the binding's: floats are normal, integers and booleans 0 or 1 (which any index may be)."""
    import torch

    out = {}
    draw = torch.Generator(device).manual_seed(seed)
    for name, t in binding.tensors.items():
        dtype = torch_dtype(str(t.dtype))
        shape = [int(d) for d in t.shape]
        strides = [int(s) for s in t.strides] if t.strides is not None else [math.prod(shape[i + 1 :]) for i in range(len(shape))]
        span = 1 + sum((d - 1) * s for d, s in zip(shape, strides, strict=True)) if all(shape) else 0
        flat = torch.randn(span, generator=draw, device=device) if dtype.is_floating_point else torch.randint(0, 2, (span,), generator=draw, device=device)
        out[name] = flat.to(dtype).as_strided(shape, strides)
    return out


def original(place: str, binding: Binding) -> Run:
    """The package's own kernel under the recorded launch, as a function of its tensors."""
    file, _, name = place.partition("::")
    package, _, inside = file.partition(":")
    if inside:
        module = importlib.import_module(f"{package}.{inside.removesuffix('.py').replace('/', '.')}")
    else:
        module = _package_file(Path(file))
    fn: Any = getattr(module, name)
    while type(fn).__name__ not in ("JITFunction", "InterpretedFunction"):
        fn = fn.fn  # the configuration is that of the recorded launch
    fixed: dict[str, Any] = {**dict.fromkeys(binding.absent), **binding.scalars, **{k: meta(v) for k, v in binding.metas.items()}}
    kept = {k: v for k, v in fixed.items() if k in fn.arg_names}
    grid, options = tuple(int(g) for g in binding.grid), dict(binding.options)

    def run(tensors: dict[str, Any]) -> None:
        fn[grid](**{**kept, **{k: v for k, v in tensors.items() if k in fn.arg_names}}, **options)

    return run


def meta(value: Any) -> Any:
    """The value of a constexpr: the names of dtypes stand for Triton's."""
    import triton.language as tl

    dtypes = {TRITON[str(x)]: x for x in vars(tl).values() if type(x).__name__ == "dtype" and str(x) in TRITON}
    return dtypes.get(value, value) if isinstance(value, str) else value


@cache
def _package_file(path: Path) -> Any:
    """A module of the package, which one process imports once: what Triton has compiled of it stays."""
    return loaded(path)


def loaded(path: Path) -> Any:
    """A module from a file."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module


def tried(row: Mapping[str, Any], device: str, folder: Path) -> dict[str, Any]:
    """What came of a row: `right`, the largest `difference` as a share of the largest value, and `seconds` with their interval; of the package's own kernel
    where it is asked about itself."""
    import torch

    path = folder / "binding.toml"
    path.write_text(row["binding"], encoding="utf-8")
    binding = Binding.read(path)
    (folder / "found.py").write_text(row["text"], encoding="utf-8")
    found = loaded(folder / "found.py")
    if device == "cuda":  # what kernels that make descriptors by themselves need
        import triton

        triton.set_allocator(lambda size, alignment, stream: torch.empty(size, dtype=torch.int8, device=device))
    slow, turns = original(row["place"], binding), Turns.of()
    fast = slow if row["same"] else found._launch
    with turns.opening(os.getpid()):
        arguments = tensors_of(binding, device, int(row.get("again", False)))
        wide = widened(arguments, row["added"])
        one = copied(arguments)
    with compiling():
        for run in (slow, fast):
            for each in (one, wide)[:1 + bool(row["added"])]:
                run(each)
    with turns.beside():
        share = apart(arguments, wide, slow, fast, row["added"])
    if not share <= WITHIN:
        return {"right": False, "difference": share}
    with turns.alone():
        before, after = samples(arguments, one, slow, fast)
    after = sorted(after)
    middle, spread = len(after) // 2, max(1, round(0.98 * math.sqrt(len(after))))
    return {"right": True, "difference": share, "ratio": ratio(before, after).to_json(), "seconds": after[middle], "low": after[max(0, middle - spread)],
            "high": after[min(len(after) - 1, middle + spread)]}


def widened(arguments: Mapping[str, Any], added: Sequence[str]) -> dict[str, Any]:
    """Arguments with some tensors in f32, laid out as they are."""
    import torch

    out = dict(arguments)
    for name in added:
        t = arguments[name]
        out[name] = torch.empty_strided(t.shape, t.stride(), dtype=torch.float32, device=t.device).copy_(t)
    return out


def apart(arguments: Mapping[str, Any], wide: Mapping[str, Any], slow: Run, fast: Run, added: Sequence[str]) -> float:
    """How far the results of two kernels are apart, as a share of the largest value. Tensors that the first one adds to atomically in few bits hold
    what the order of their additions made of them, which is another each time: they are compared as sums in f32 (`wide`), where the order says nothing, and as
    they are to within twice of what two further runs of the first one differ by."""
    one, other = copied(arguments), copied(arguments)
    slow(one)
    fast(other)
    worst = _share(difference({k: v for k, v in one.items() if k not in added}, other))
    if not added:
        return worst
    first, second = copied(wide), copied(wide)
    slow(first)
    fast(second)
    worst = max(worst, _share(difference(first, second)))
    runs = [copied(arguments), copied(arguments)]
    for each in runs:
        slow(each)
    for name in added:
        mine, own = (difference({name: one[name]}, {name: x[name]}) for x in (other, runs[0]))
        more = difference({name: one[name]}, {name: runs[1][name]})
        spread = 2 * max(own["difference"], more["difference"])
        if mine["difference"] > spread:
            worst = max(worst, _share(mine))
    return worst


def _share(seen: Mapping[str, float]) -> float:
    return seen["difference"] / seen["scale"] if seen["scale"] else seen["difference"]


@contextmanager
def compiling() -> Iterator[None]:
    """Triton's launches compile, and launch nothing: that takes seconds, for which nobody need wait."""
    from triton.runtime.jit import JITFunction

    launch = JITFunction.run

    def compiled(fn: Any, *args: Any, grid: Any, warmup: bool, **options: Any) -> Any:
        return launch(fn, *args, grid=grid, warmup=True, **options)

    JITFunction.run = compiled
    try:
        yield
    finally:
        JITFunction.run = launch


def serve(channel: socket.socket) -> None:
    """Answer rows, one after another, until one goes wrong."""
    with contextlib.suppress(wire.Closed):
        while (said := answer(wire.receive(channel)[0])).get("right"):
            wire.send(channel, said)
        wire.send(channel, said)


def answer(message: Mapping[str, Any]) -> dict[str, Any]:
    """What comes of a row."""
    said: dict[str, Any]
    try:
        import torch

        if torch.cuda.is_available():
            with tempfile.TemporaryDirectory(prefix="kir-trial-") as name:
                said = tried(message["row"], "cuda", Path(name))
            torch.cuda.empty_cache()  # other processes share the device
        else:
            said = {"gone": True, "failed": "torch finds none"}
    except Exception as fault:  # whatever it is, it is what came of this candidate
        said = {"failed": f"{type(fault).__name__}: {str(fault).strip().partition(chr(10))[0]}"[:300]}
    return said
