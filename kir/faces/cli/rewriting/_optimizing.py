"""Where `kir optimize` has its candidates gated, and the runs of one kernel and of a package."""
from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import field, replace
from pathlib import Path
from typing import Any, Literal

from kir.base.dataclass import dataclass
from kir.base.diagnostic import Diagnostic
from kir.faces.cli._result import Result
from kir.hardware.target import Target
from kir.learning.optimize.events import Recorder
from kir.learning.optimize.inputs import Subject, launched, varied
from kir.learning.optimize.judge import CpuJudge, Judge
from kir.learning.optimize.plan import Setting
from kir.learning.optimize.policy import Policy
from kir.learning.optimize.pool.devices import SEARCHING, SHARING, chosen, parsed, workers_each
from kir.learning.optimize.pool.engines import Devices, Engine, Processes
from kir.learning.optimize.pool.judge import PoolJudge
from kir.learning.optimize.pool.tasks import task_of
from kir.learning.optimize.search import Budget, Found, Search


@dataclass(frozen=True)
class Where:
    """What the command line says of where candidates are gated."""

    on: Literal["cpu", "gpu"]
    workers: int
    cluster: str
    compiles: bool
    cache: Path | None
    gpus: str = ""
    notes: list[Diagnostic] = field(default_factory=list)
    """What the user is told beside the result: GPUs that were left out, or lost."""

    @contextmanager
    def engine(self, sharing: int = SHARING) -> Iterator[Engine | None]:
        """The pool that is asked for, with so many processes a GPU; None where this process does it itself. Raises KirError KIR-U034, and KIR-U036 for
        a GPU that is not there or not free."""
        made: Engine | None = None
        if self.cluster:
            from kir.learning.optimize.pool.cluster import Cluster

            made = Cluster(self.cluster, gpus=1.0 / SHARING if self.on == "gpu" else 0.0, cpus=self.workers)
        elif self.on == "gpu":
            from kir.hardware import machine

            found = chosen(machine.gpus(), parsed(self.gpus))
            self._leave_out(found.left)
            each = workers_each(len(found.numbers), sharing)
            made = Devices(found.numbers, each) if found.numbers != (0,) or each > 1 else None
        elif self.workers > 1:
            made = Processes(self.workers)
        try:
            yield made
        finally:
            if made is not None:
                made.close()
            if isinstance(made, Devices):
                self._leave_out(made.retired)

    def _leave_out(self, left: Mapping[int, str]) -> None:
        self.notes.extend(Diagnostic("KIR-U037", f"GPU {number} is left out: {why}", severity="warning") for number, why in sorted(left.items()))


def search_run(one: Subject, setting: Setting, allowed: Budget, policy: Policy, log: Path | None, where: Where) -> Found:
    """One search, gated where it was asked for."""
    def searching(judge: Judge, at: Setting, stoppable: bool = True) -> Found:
        return Search(one.program, at, judge, policy=policy, budget=allowed, recorder=Recorder.over(log), given_surface=one.surface, stoppable=stoppable,
                      varied=varied(one, at), as_given=judge if one.call else None, launched=launched(one)).run()

    with ExitStack() as held:
        engine = held.enter_context(where.engine())
        if one.call:
            return searching(_of_call(one, setting, where, engine), setting, stoppable=not where.cluster)
        if engine is not None:
            gpu = where.on == "gpu"
            here, shared = setting, None
            if isinstance(engine, Devices):
                from kir.gate.gpu import Gpu
                from kir.gate.gpu.oracle import sharing

                shared = held.enter_context(sharing())
                here = replace(setting, target=Gpu(where.cache or Path(), engine.numbers[0]).target)
            judge = PoolJudge(engine, lambda p, s: task_of(here, p, s, where.compiles, str(where.cache or ""), where.on, shared), name=where.on,
                              measures=gpu)
            return searching(judge, here, stoppable=not where.cluster)  # a cluster's processes are interrupted, too
        if where.on == "gpu":
            from kir.gate.gpu import Gpu
            from kir.gate.gpu.oracle import sharing
            from kir.learning.optimize.judge import GpuJudge

            device = held.enter_context(Gpu.open(where.cache))
            here = replace(setting, target=device.target)
            return searching(GpuJudge(device, here, shared=held.enter_context(sharing())), here)
        from kir.gate.artifacts import ArtifactCache

        return searching(CpuJudge(setting, ArtifactCache(where.cache) if where.cache else None, where.compiles), setting)


def _of_call(one: Subject, setting: Setting, where: Where, engine: Engine | None) -> Judge:
    """Who judges a recorded call that is too large to be interpreted whole, as a package's calls are judged."""
    from kir.gate.artifacts import ArtifactCache
    from kir.learning.packages.calls import Call, Ranked
    from kir.learning.packages.sample import CallJudge

    assert isinstance(one.binding, Path)
    judges = _judges(where, engine, setting.target)
    made: Judge = judges(Ranked(Call(one.file, one.binding, 1), 0.0, 0.0)) if judges is not None else CallJudge(
        one.program, setting.target, ArtifactCache(where.cache) if where.cache else None, where.compiles)
    return made


def package_run(bindings: str, package: str, target: Target, allowed: Budget, output: Path | None, where: Where) -> Result:
    """A package's recorded calls under one budget. Raises what `kir.learning.packages.run.optimized` does, and UsageError KIR-C002 without a folder."""
    from kir.base.diagnostic import usage
    from kir.faces.cli._progress import bar
    from kir.learning.packages.run import Asked, optimized

    if output is None:
        raise usage("KIR-C002", "--package needs a folder for what is found", needs="-o FOLDER")
    with where.engine(SEARCHING) as engine, bar("calls", 0) as advance:
        asked = Asked(Path(bindings or "bindings"), "" if package == "any" else package, target, output, allowed, where.compiles, where.cache,
                      _judges(where, engine, target), engine if isinstance(engine, (Devices, Processes)) else None, where.on == "gpu")
        found = optimized(asked, advance)
    lines = [f"{r['speedup']:6.3f} times as fast  {r['kernel']}  {r['best']['plan']}" for r in found.rows if r["program"]]
    lines += [f"{len(found.rows)} calls were searched, {len(lines)} are faster, {len(found.skipped)} were skipped; {found.ended}"]
    lines += [f"written: {name}" for name in found.files]
    if found.modules:
        lines.append(f"PYTHONPATH={output / 'overlay'} puts them in the place of the package's own")
    return Result(found.to_json(), "\n".join(lines), diagnostics=tuple(where.notes))


def _judges(where: Where, engine: Engine | None, target: Target) -> Callable[[Any], Any] | None:
    """Who judges the candidates of a recorded call; None for this process, on the CPU."""
    from kir.ir.printer import program_text
    from kir.learning.packages.sample import CallTask, judged_call
    from kir.learning.packages.trial import DeviceJudge, DeviceTask, tried_on_device

    if where.on == "gpu":
        if engine is None or isinstance(engine, Devices):
            return lambda r: DeviceJudge(r.call, r.expert.program)
        return lambda r: PoolJudge(engine, lambda p, s: DeviceTask.of(r.call, p, r.expert.program), tried_on_device, "gpu", True)
    if engine is None or isinstance(engine, Processes):
        return None
    return lambda r: PoolJudge(engine, lambda p, s: CallTask(program_text(p), s, program_text(r.expert.program), target.name, where.compiles,
                                                             str(where.cache or "")), judged_call)
