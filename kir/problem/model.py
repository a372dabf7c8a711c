"""Problems from files in the form of KernelBench: a class `Model`, `get_inputs()` and `get_init_inputs()`.

    problem = load_problem("level1/1_Square_matrix_multiplication.py")

The file is anyone's: it is read here as text, and run in a confined process of its own. Its call becomes an ABI: what `forward` takes is an
input by its argument's name (a tensor) or a scalar (a number), what `Model` holds is an input by its name in the state (`fc.weight` is
`fc_weight`), and what `forward` returns is the output `out`. The oracle is the model in float64; the bound is what rounding in its own dtype
does to it (`kir.problem.rounding_noise`). Whole numbers that only `get_inputs` needs are the problem's sizes, and smaller shapes are made from
them; a file without any is checked at the one shape that it gives.
"""
from __future__ import annotations

import atexit
import contextlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import field, replace
from functools import cache, cached_property
from itertools import combinations, combinations_with_replacement, product
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kir.base.dataclass import dataclass
from kir.base.diagnostic import Diagnostic, KirError, error, usage
from kir.hardware import machine
from kir.hardware.device.client import Child, ChildGone, Server
from kir.ir import nodes as n
from kir.problem import comparison
from kir.problem.comparison import Comparison
from kir.problem.draws import numpy_dtype, unit_roundoff
from kir.problem.model_child import LATER, MODULES, TASK, about, unpacked
from kir.problem.model_source import ModelSource
from kir.problem.ordering import ordered, split
from kir.problem.problem import Arrays, Problem
from kir.problem.schema import Draw, ProblemFile, Shape, Tensor, WorkItem, evaluate

Array = NDArray[Any]
Sizes = Mapping[str, int]
SECONDS = 600.0
"""How long one question may take."""
START_SECONDS = 180.0
"""How long importing torch may take."""
NORM = 0.25
"""The part of the bound's norm that the error's may reach: the bound is many times the spread."""
SMALLER: tuple[tuple[str, tuple[str, ...], tuple[int, ...]], ...] = (
    ("one", ("one",), (1,)), ("odd", ("odd", "tail"), (5, 7, 3, 11, 13)), ("small", ("small",), (16, 32, 64)), ("tail", ("tail",), (37, 21, 50, 18)))
"""Name, tags, and values that the sizes take in turn."""
SIGNED = ("signed", "negative")
"""Distributions of inputs that the file draws on one side of zero alone: there an absolute value, or what is cut off at zero, does nothing."""
TELLING = ("zeros", "mean", "nan", "input", "last element skipped")
"""Forgeries that must fail; one in a lower precision may pass where sums are long, and is then said."""


@cache
def _server() -> Server:
    """The fork server that has imported torch; it ends with this process, or with the last of those that share it."""
    made = Server(TASK, MODULES, {"CUDA_VISIBLE_DEVICES": ""}, LATER, shares=True)
    atexit.register(made.close)
    return made


@dataclass
class Runner:
    """The process that runs a file, started when it is first asked. One question at a time, whoever asks."""

    source: ModelSource
    _child: Child | None = None
    _turn: Lock = field(default_factory=Lock, compare=False, repr=False)

    def ask(self, op: str, sizes: Sizes, arrays: Mapping[str, Array] | None = None, **more: Any) -> tuple[dict[str, Any], Arrays]:
        """One answer. Raises the file's refusals as KirError, and KIR-G911 for a process that died or did not answer."""
        given = dict(arrays or {})
        message = {"op": op, "sizes": dict(sizes), "arrays": about(given), **more}
        try:
            with self._turn:
                answer, blobs = self._started().ask(message, [np.ascontiguousarray(a).tobytes() for a in given.values()], SECONDS)
        except ChildGone as gone:
            self.close()
            raise error("KIR-G911", f"running it failed: {gone.said}", origin=self.source.line(1)) from None
        if "refused" in answer:
            raise KirError(*(Diagnostic.from_json(d) for d in answer["refused"]))
        return answer, unpacked(answer["arrays"], blobs)

    def _started(self) -> Child:
        if self._child is None:
            if machine.package_version("torch") is None:
                raise error("KIR-G919", "a problem in the form of KernelBench is a torch model, and torch is not installed", origin=self.source.line(1),
                            needs="pip install torch")
            self._child = _server().child(START_SECONDS)
            self._child.ask({"op": "load", "path": self.source.path, "text": self.source.text}, seconds=START_SECONDS)
        return self._child

    def close(self) -> None:
        """End the process; the next question starts another."""
        if self._child is not None:
            with contextlib.suppress(ChildGone):
                self._child.close()
        self._child = None


@dataclass(frozen=True)
class ModelProblem(Problem):
    """A problem whose reference is a torch model. `held` are the inputs that are its state, in its order; `caveats` are wrong answers that
    its check cannot tell from right ones."""

    runner: Runner = field(kw_only=True, compare=False)
    held: tuple[str, ...] = field(default=(), kw_only=True)
    caveats: tuple[str, ...] = field(default=(), kw_only=True)

    @property
    def name(self) -> str:
        return self.spec.name

    @property
    def computed_by(self) -> bytes:
        return self.runner.source.text.encode()

    @property
    def drawn_by_host(self) -> bool:
        return True

    @property
    def always(self) -> tuple[str, ...]:
        return tuple(d for d in SIGNED if d in self.spec.distributions)

    def admits(self, shape: Shape) -> bool:
        """Whether the file makes a call at these sizes, with the extents that are expected."""
        try:
            found, _ = self.runner.ask("describe", shape.sizes)
        except KirError:
            return False
        return all(tuple(row["shape"]) == self.tensor_shape(t, shape) for row, t in zip(found["tensors"], self.spec.tensors, strict=True))

    def inputs(self, shape: Shape | str, seed: int = 0, distribution: str = "normal") -> Arrays:
        at = self.shape(shape) if isinstance(shape, str) else shape
        base, ordering = split(distribution)
        if base not in self.spec.distributions:
            return super().inputs(at, seed, base)  # refuses
        _, arrays = self.runner.ask("inputs", at.sizes, seed=seed, distribution=base)
        drawn = {name: a.reshape(self.tensor_shape(t, at)) for t in self.spec.tensors for name, a in arrays.items() if t.name == name}
        if ordering is None:
            return drawn
        inputs = ordered(drawn, self.spec.tensors, ordering, seed)
        return inputs if _answered(self, at, inputs) else drawn

    def oracle(self, inputs: Mapping[str, Array], shape: Shape | str) -> Arrays:
        at = self.shape(shape) if isinstance(shape, str) else shape
        return self.runner.ask("oracle", at.sizes, inputs)[1]

    def bounds(self, inputs: Mapping[str, Array], shape: Shape | str, oracle: Mapping[str, Array] | None = None) -> Arrays:
        return {"out": self._bounded(inputs, self.shape(shape) if isinstance(shape, str) else shape)["bound"]}

    def _bounded(self, inputs: Mapping[str, Array], at: Shape) -> Arrays:
        return self.runner.ask("bounded", at.sizes, inputs, unit=unit_roundoff(self.spec.tensors[-1].dtype))[1]

    def compare(self, outputs: Mapping[str, Array], inputs: Mapping[str, Array], shape: Shape | str) -> Comparison:
        at = self.shape(shape) if isinstance(shape, str) else shape
        return self.compare_with(outputs, inputs, at, lambda: self.expected(inputs, at))

    def compare_with(self, outputs: Mapping[str, Array], inputs: Mapping[str, Array], at: Shape, expected: Callable[[], tuple[Arrays, Arrays]]) -> Comparison:
        t = self.spec.tensors[-1]
        if refused := comparison.check_form(outputs, t, t.dtype, self.tensor_shape(t, at)):
            return refused
        exact, bounds = expected()
        return _judged(self, {"out": exact[t.name], "bound": bounds[t.name]}, outputs[t.name])

    def expected(self, inputs: Mapping[str, Array], at: Shape) -> tuple[Arrays, Arrays]:
        found = self._bounded(inputs, at)
        return {"out": found["out"]}, {"out": found["bound"]}

    @property
    def reference_text(self) -> str:
        """The file, and a function `run` of the problem's inputs and numbers."""
        inputs = [t.name for t in self.spec.tensors if t.role == "in"]
        named = [x for x in (*inputs, *self.spec.scalars) if x not in self.held]
        return self.runner.source.text + "\n".join([
            "", "", f"def run({', '.join([*inputs, *self.spec.scalars])}):", "    import torch", "    made = get_init_inputs()",
            "    several = len(made) == 2 and isinstance(made[0], list) and isinstance(made[1], dict)",
            "    model = Model(*made[0], **made[1]) if several else Model(*made)", "    for part_ in model.modules():",
            "        for name_, held_ in list(vars(part_).items()):", "            if isinstance(held_, torch.Tensor) and held_.numel():",
            "                delattr(part_, name_)", "                part_.register_buffer(name_, held_)", "    with torch.no_grad():",
            f"        for held_, given_ in zip(model.state_dict().values(), [{', '.join(self.held)}], strict=True):",
            "            held_.copy_(given_.reshape(held_.shape))",
            f"        return model.to({inputs[0]}.device)({', '.join(f'{x}={x}' for x in named)})", ""])

    @cached_property
    def naive(self) -> n.Program:
        """What the model's operators compute, one thread a work item. Raises KirError KIR-G918 for what no such program says."""
        from kir.problem.naive.program import naive_program

        recorder = Runner(self.runner.source)
        try:
            told = [(s.sizes, recorder.ask("record", s.sizes)[0]) for s in self.shapes]
        finally:
            recorder.close()
        as_timed = [call["op"] for call in told[-1][1]["calls"]]
        usual = [(sizes, x) for sizes, x in told if 1 not in sizes.values() or [call["op"] for call in x["calls"]] == as_timed]  # torch takes ways about 1
        at, recordings = [sizes for sizes, _ in usual], [x for _, x in usual]
        return naive_program(self.spec.name, recordings, at[0], self.spec.tensors, self.spec.scalars,
                             lambda values: _expression(list(zip(at, values, strict=True))), self.runner.source.forward)


def load_model(path: Path) -> ModelProblem:
    """The problem of a file. Raises KirError KIR-G910 to KIR-G919, located in it."""
    source = ModelSource.read(path)
    return _made(path, source)


@cache
def _made(path: Path, source: ModelSource) -> ModelProblem:
    """The problem of a text, made once: it holds a process."""
    runner = Runner(source)
    given, _ = runner.ask("describe", {})
    shapes, tensors = _shapes(runner, source.sizes, given)
    dtype = str(given["dtype"])
    usual = {t.name: Draw(kind="normal") for t in tensors if t.role == "in"}
    spec = ProblemFile.model_construct(
        name=path.stem, title=f"the model of {path.name}", operator="model", dtypes=(), scalars=dict(given["scalars"]), tensors=tensors, shapes=shapes,
        distributions=dict.fromkeys(("normal", "sparse", "large", "tiny", "huge", *SIGNED), usual), work_item=WorkItem(kind="element", axes=()), norm=NORM,
        references=(MODEL_REFERENCE,))
    smallest = min((s for s in shapes if "one" not in s.tags), key=lambda s: _elements(tensors, s), default=shapes[0])
    runner.ask("examine", smallest.sizes)
    spec = spec.model_copy(update={"bytes": _bytes(runner, tensors, smallest)})
    out = ModelProblem(spec, dtype, path, path.parent, runner=runner, held=tuple(given["state"]))
    usual_ = out.inputs(smallest, 1)
    one_sided = any(a.dtype.kind == "f" and a.size and bool((a >= 0).all()) for name, a in usual_.items() if name not in given["state"])
    kept = {name: usual for name in spec.distributions if name == "normal" or ((one_sided or name not in SIGNED) and _fair(out, smallest, name))}
    out = replace(out, spec=spec.model_copy(update={"distributions": kept}))
    return replace(out, caveats=_caveats(out, smallest))


MODEL_REFERENCE = "the file's own Model, eager"
"""The name that the file itself has in the panel."""


def _elements(tensors: Iterable[Tensor], s: Shape) -> int:
    return sum(int(np.prod([evaluate(d, s.sizes) for d in t.shape])) for t in tensors)


def _fair(problem: ModelProblem, at: Shape, distribution: str) -> bool:
    """Whether a distribution has an answer: finite, and one that the model itself gives in its own dtype."""
    try:
        return _answered(problem, at, problem.inputs(at, 1, distribution))
    except KirError:
        if distribution in SIGNED:
            return False  # the model takes no such numbers
        raise


def _answered(problem: ModelProblem, at: Shape, inputs: Mapping[str, Array]) -> bool:
    """Whether inputs have a finite answer, which the model itself gives in its own dtype."""
    found = problem._bounded(inputs, at)
    return bool(np.isfinite(found["out"].astype(np.float64)).all()) and _judged(problem, found, problem.runner.ask("own", at.sizes, inputs)[1]["out"]).ok


def _judged(problem: ModelProblem, found: Mapping[str, Array], got: Array) -> Comparison:
    t = problem.spec.tensors[-1]
    return comparison.elementwise(t.name, t.dtype, got, found["out"], found["bound"], problem.spec.norm)


def _caveats(problem: ModelProblem, at: Shape) -> tuple[str, ...]:
    """What the check lets through. Raises KirError KIR-G917 for what it must not, or where the model itself fails it."""
    source, inputs = problem.runner.source, problem.inputs(at, 2)
    found = problem._bounded(inputs, at)
    own = _judged(problem, found, problem.runner.ask("own", at.sizes, inputs)[1]["out"])
    if not own.ok:
        raise error("KIR-G917", f"the model in its own dtype is not right by itself in float64: {own.reason}", origin=source.forward,
                    needs="a model whose answer rounding does not decide")
    if "one" in at.tags:
        return ("its only shape has one element",)
    passing = [name for name, forged in problem.forgeries(inputs, at).items() if _judged(problem, found, forged["out"]).ok]
    for other in problem.always if any(name in TELLING for name in passing) else ():
        others = problem.inputs(at, 2, other)
        there = problem._bounded(others, at)
        forged = problem.forgeries(others, at)
        passing = [name for name in passing if name in forged and _judged(problem, there, forged[name]["out"]).ok]
    if wrong := [name for name in passing if name in TELLING]:
        raise error("KIR-G917", f"at shape '{at.name}' a kernel that writes {wrong[0]} would be right", origin=source.result,
                    needs="a model whose output depends on its inputs")
    return tuple(passing)


def _bytes(runner: Runner, tensors: Iterable[Tensor], at: Shape) -> str:
    """Bytes that no kernel can do without reading, as an expression over the sizes: those of inputs whose every tried element matters."""
    dense = runner.ask("dense", at.sizes)[0]["dense"]
    terms = [" * ".join([f"({d})" for d in t.shape] + [str(numpy_dtype(t.dtype).itemsize)]) for t in tensors if t.name in dense]
    return " + ".join(terms) or "0"


# ---------------------------------------------------------------------------------------------------------------------------- shapes

def _shapes(runner: Runner, sizes: Sizes, given: Mapping[str, Any]) -> tuple[tuple[Shape, ...], tuple[Tensor, ...]]:
    """The shape of the file, and smaller ones at which it can be called, with every extent as an expression over the sizes. A size whose
    change moves no extent is none; where an extent fits no expression, the file's shape stands alone."""
    def told(at: Sizes) -> Mapping[str, Any] | None:
        try:
            return runner.ask("describe", {**sizes, **at})[0]
        except KirError:
            return None
    def extents(found: Mapping[str, Any]) -> list[tuple[int, ...]]:
        return [tuple(row["shape"]) for row in found["tensors"]]
    moving = {name: value for name, value in sizes.items() if (x := told({name: value + 1})) is not None and extents(x) != extents(given)}
    probes: list[tuple[Sizes, list[tuple[int, ...]]]] = [(moving, extents(given))]
    found: list[Shape] = []
    for name, tags, values in SMALLER if moving else ():
        wanted = {k: min(v, values[i % len(values)]) for i, (k, v) in enumerate(moving.items())}
        for at in _relaxed(wanted, moving):
            answer = told(at)
            if answer is not None and len(answer["tensors"]) == len(given["tensors"]):
                probes.append((at, extents(answer)))
                if all(dict(at) != s.sizes for s in found) and dict(at) != dict(moving):
                    kept = tags if name != "one" or set(at.values()) == {1} else ("odd",)
                    found.append(Shape(name=name, tags=kept, sizes=dict(at)))  # type: ignore[arg-type]  # tags of SMALLER
                break
    for name, value in moving.items():
        if (answer := told({name: value + 1})) is not None:
            probes.append(({**moving, name: value + 1}, extents(answer)))
    tensors = _tensors(given, probes)
    if tensors is None:
        moving, found = {}, []
        tensors = tuple(Tensor(name=row["name"], role=row["role"], dtype=row["dtype"], shape=tuple(map(str, row["shape"]))) for row in given["tensors"])
    if not any("one" not in s.tags for s in found):
        found.append(Shape(name="as given", tags=("small",), sizes=dict(moving)))
    return (*found, Shape(name="given", tags=("timed",), sizes=dict(moving))), tensors


def _relaxed(wanted: dict[str, int], given: Sizes) -> Iterable[dict[str, int]]:
    """The wanted sizes, then with one and with two of them as given, then with all but one."""
    yield wanted
    for count in (1, 2, len(wanted) - 1):
        for kept in combinations(wanted, count) if 0 < count < len(wanted) else ():
            yield {**wanted, **{name: given[name] for name in kept}}


def _tensors(given: Mapping[str, Any], probes: list[tuple[Sizes, list[tuple[int, ...]]]]) -> tuple[Tensor, ...] | None:
    out = []
    for i, row in enumerate(given["tensors"]):
        if any(len(extents[i]) != len(row["shape"]) for _, extents in probes):
            return None
        shape = [_expression([(at, extents[i][axis]) for at, extents in probes]) for axis in range(len(row["shape"]))]
        if any(x is None for x in shape):
            return None
        out.append(Tensor(name=row["name"], role=row["role"], dtype=row["dtype"], shape=tuple(x for x in shape if x is not None)))
    return tuple(out)


def _expression(points: list[tuple[Sizes, int]]) -> str | None:
    """The simplest expression over the sizes that gives every extent: a number, a size, a multiple with an offset, a quotient as
    convolutions have it, a product of two."""
    sizes, first = points[0]
    texts = [str(first), *sizes]
    for name, value in sizes.items():
        texts += [f"{name} + {first - value}" if first >= value else f"{name} - {value - first}"]
        texts += [f"{name} * {first // value}"] if value and first % value == 0 else []
        other = next(((at[name], e) for at, e in points if at[name] != value), None)
        if other is not None and (first - other[1]) % (value - other[0]) == 0:
            slope = (first - other[1]) // (value - other[0])
            rest = first - slope * value
            texts.append(f"{name} * {slope} + {rest}" if rest >= 0 else f"{name} * {slope} - {-rest}")
        for step, shift in product(range(2, 9), range(8)):
            rest = first - (value + shift) // step
            texts.append(f"({name} + {shift}) // {step}" + (f" + {rest}" if rest > 0 else f" - {-rest}" if rest else ""))
    pairs = list(combinations_with_replacement(sizes, 2))
    texts += [f"{a} * {b}" for a, b in pairs]
    texts += [f"{a} * {b} * {first // (sizes[a] * sizes[b])}" for a, b in pairs if sizes[a] * sizes[b] and first % (sizes[a] * sizes[b]) == 0]
    def fits(text: str) -> bool:
        return all(evaluate(text, at) == e for at, e in points)
    return next((text for text in texts if fits(text)), None)


def require_plain(text: str) -> Path:
    """The path of a file in this form. Raises UsageError KIR-G901 where there is none."""
    path = Path(text)
    if not path.is_file():
        raise usage("KIR-G901", f"there is no problem file '{text}'", needs="a file with Model, get_inputs and get_init_inputs")
    return path
