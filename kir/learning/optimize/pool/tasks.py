"""One candidate as what crosses to another process, and what a worker does with it."""
from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from kir.base.dataclass import dataclass
from kir.base.diagnostic import error
from kir.gate.gpu.relative import ProgramProblem, from_texts
from kir.hardware.target import target
from kir.ir.canonical import content_hash
from kir.ir.nodes import Program
from kir.ir.parser import parse_program
from kir.ir.printer import program_text
from kir.learning.optimize.judge import CpuJudge, GpuJudge
from kir.learning.optimize.plan import Setting
from kir.learning.tune.device import with_shape
from kir.problem import Shape, load_problem

if TYPE_CHECKING:
    from kir.gate.gpu import Gpu
    from kir.gate.gpu.oracle import Shared


class Job(Protocol):
    """What a pool is given: anything that can be sent, with the key that its result is kept by."""

    @property
    def key(self) -> str:
        """The same for what has the same result."""
        ...


@dataclass(frozen=True)
class Task:
    """A program of a search, as texts and names; `problem` is a name, or the texts of a program that says what is computed, as JSON; `on` is `cpu` or
    `gpu`; `shared` are the secret and the folder of what gates of one search have in common, none across machines."""

    text: str
    surface: str
    problem: str
    shape: tuple[str, tuple[tuple[str, int], ...]]
    target: str
    compiles: bool
    cache: str
    on: str = "cpu"
    shared: tuple[int, str] | None = None
    again: bool = False
    """Whether it was right before and is judged on inputs that it has not seen."""
    judged: tuple[str, tuple[tuple[str, int], ...]] | None = None
    """Where it is judged as a whole, if not at `shape` (`Setting.judged`)."""

    @property
    def key(self) -> str:
        """The content hash of the program, and its surface."""
        return f"{content_hash(parse_program(self.text))} {self.surface}{' again' * self.again}"


def task_of(setting: Setting, program: Program, surface: str, compiles: bool = True, cached: str = "", on: str = "cpu",
            shared: Shared | None = None) -> Task:
    """The task of judging a program in a setting."""
    shape = _sent(setting.shape)
    posed = setting.problem
    named = json.dumps(posed.texts()) if isinstance(posed, ProgramProblem) else str(posed.name)
    return Task(program_text(program), surface, named, shape, setting.target.name, compiles, cached, on,
                (shared.secret, str(shared.answers.folder)) if shared is not None else None,
                judged=_sent(setting.judged) if setting.judged is not None else None)


def _sent(shape: Shape) -> tuple[str, tuple[tuple[str, int], ...]]:
    return shape.name, tuple(shape.sizes.items())


def _received(sent: tuple[str, tuple[tuple[str, int], ...]]) -> Shape:
    return Shape(name=sent[0], tags=("timed", "asked"), sizes=dict(sent[1]))


def judged(task: Task) -> dict[str, Any]:
    """What a worker does: the gate's word on a task, as JSON; of a GPU's also `spent`, as `GpuJudge` has it."""
    from kir.gate.artifacts import ArtifactCache

    shape = _received(task.shape)
    problem = with_shape(from_texts(json.loads(task.problem)) if task.problem.startswith("[") else load_problem(task.problem), shape)
    if task.on == "gpu":
        from kir.gate.gpu.oracle import Shared
        from kir.problem.answers import Answers

        gpu = _gpu(task.cache)
        shared = Shared(task.shared[0], Answers(Path(task.shared[1]))) if task.shared else None
        at = Setting(problem, problem.shape(shape.name), gpu.target, task.surface, _received(task.judged) if task.judged is not None else None)
        judge = GpuJudge(gpu, at, shared=shared)
        said = (judge.again if task.again else judge.judge)(parse_program(task.text), task.surface)
        if not said.accepted:
            require_answer(gpu)
        return {**said.to_json(), "spent": judge.spent}
    setting = Setting(problem, problem.shape(shape.name), target(task.target), task.surface)
    kept = ArtifactCache(Path(task.cache)) if task.cache else None
    by = CpuJudge(setting, kept, task.compiles)
    return (by.again if task.again else by.judge)(parse_program(task.text), task.surface).to_json()


def require_answer(gpu: Gpu) -> None:
    """Refuse to believe a refusal by a GPU that no longer answers. Raises KirError KIR-U035: a fresh process could not open it."""
    from kir.hardware.device.client import ChildGone

    try:
        child, _ = gpu.opened()
    except ChildGone as gone:
        raise error("KIR-U035", f"the GPU no longer answers: {gone}", needs="a GPU that answers; `nvidia-smi` says what is wrong with it") from gone
    child.close()


@cache
def _gpu(folder: str) -> Gpu:
    """The one GPU that this worker sees, opened once."""
    from kir.gate.gpu import Gpu

    return Gpu.open(Path(folder) if folder else None)
