"""FlashInfer-Trace: definitions, workloads, solutions and traces as flashinfer-bench reads and writes them.

    for trace in read(Path("traces/gemm.jsonl"), Trace): ...
    written(Path("out"), verdict, problem)        # definitions/, solutions/ and traces/ of one verdict

The forms follow flashinfer-bench (docs/flashinfer_trace). What KIR measures beyond them goes into `correctness.extra`.
"""
from __future__ import annotations

import ast
import json
import math
import uuid
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from kir.base.diagnostic import error
from kir.base.store import write_atomic
from kir.gate.verdict import Verdict
from kir.problem import Problem
from kir.problem.model import ModelProblem
from kir.problem.schema import evaluate

Dtype = Literal["float32", "float16", "bfloat16", "float8_e4m3fn", "float8_e4m3", "float8_e5m2", "float4_e2m1", "float64", "int64", "int32",
                "int16", "int8", "uint8", "bool"]
DTYPES: Mapping[str, Dtype] = {"f64": "float64", "f32": "float32", "f16": "float16", "bf16": "bfloat16", "f8e4m3": "float8_e4m3fn", "f8e5m2": "float8_e5m2",
                               "i64": "int64", "i32": "int32", "i16": "int16", "i8": "int8", "u8": "uint8", "bool": "bool"}
"""Their names for dtypes of the IR."""
FILES = {"triton": "kernel.py", "tilelang": "kernel.py", "cuda": "kernel.cu"}


class _Form(BaseModel):
    model_config = ConfigDict(extra="allow", ser_json_inf_nan="strings")


class Axis(_Form):
    """A dimension: `const` with its value, or `var`."""

    type: Literal["const", "var"]
    value: int | None = None
    description: str | None = None

    @model_validator(mode="after")
    def _has_value(self) -> Axis:
        if (self.type == "const") != (self.value is not None) or (self.value is not None and self.value < 0):
            raise ValueError("a const axis has a value, which is not negative, and a var axis has none")
        return self


class TensorSpec(_Form):
    """A tensor by names of axes; a scalar has no shape."""

    shape: list[str] | None
    dtype: Dtype
    description: str | None = None


class Definition(_Form):
    """What is computed: `reference` is Python with a function `run`."""

    name: Annotated[str, Field(min_length=1)]
    op_type: Annotated[str, Field(min_length=1)]
    axes: dict[str, Axis]
    inputs: dict[str, TensorSpec]
    outputs: dict[str, TensorSpec]
    reference: str
    tags: list[str] | None = None
    description: str | None = None
    constraints: list[str] | None = None

    @model_validator(mode="after")
    def _consistent(self) -> Definition:
        for name, spec in (*self.inputs.items(), *self.outputs.items()):
            for axis in spec.shape or ():
                if axis not in self.axes:
                    raise ValueError(f"'{name}' has the axis '{axis}', which is not defined")
        try:
            body = ast.parse(self.reference).body
        except SyntaxError as bad:
            raise ValueError(f"the reference is no Python: {bad}") from bad
        if not any(isinstance(s, ast.FunctionDef) and s.name == "run" for s in body):
            raise ValueError("the reference defines no function 'run'")
        return self


class Input(_Form):
    """Where an input comes from."""

    type: Literal["random", "scalar", "safetensors"]
    value: int | float | bool | None = None
    path: str | None = None
    tensor_key: str | None = None

    @model_validator(mode="after")
    def _complete(self) -> Input:
        if (self.type == "scalar" and self.value is None) or (self.type == "safetensors" and not (self.path and self.tensor_key)):
            raise ValueError(f"an input of type '{self.type}' lacks its value, or its path and key")
        return self


class Workload(_Form):
    """Values of the var axes, and inputs."""

    uuid: Annotated[str, Field(min_length=1)]
    axes: dict[str, Annotated[int, Field(ge=0)]]
    inputs: dict[str, Input]


class Source(_Form):
    """A file of a solution."""

    path: Annotated[str, Field(min_length=1)]
    content: str


class Spec(_Form):
    """How a solution is built and entered (`file::function`)."""

    language: str
    target_hardware: list[str]
    entry_point: Annotated[str, Field(pattern=r".+::.+")]
    dependencies: list[str] | None = None
    build_commands: list[str] | None = None


class Solution(_Form):
    """An implementation of a definition."""

    name: Annotated[str, Field(min_length=1)]
    definition: Annotated[str, Field(min_length=1)]
    author: Annotated[str, Field(min_length=1)]
    spec: Spec
    sources: Annotated[list[Source], Field(min_length=1)]
    description: str | None = None

    @model_validator(mode="after")
    def _has_entry(self) -> Solution:
        file = self.spec.entry_point.partition("::")[0]
        if file not in {s.path for s in self.sources}:
            raise ValueError(f"the entry point's file '{file}' is no source")
        return self


class Correctness(_Form):
    """Largest errors; NaN where they were judged by a bound alone (`extra.error_over_bound`)."""

    max_relative_error: float = 0.0
    max_absolute_error: float = 0.0
    extra: dict[str, Any] | None = None


class Performance(_Form):
    """Milliseconds; zeros where no reference was timed."""

    latency_ms: Annotated[float, Field(ge=0)]
    reference_latency_ms: Annotated[float, Field(ge=0)] = 0.0
    speedup_factor: Annotated[float, Field(ge=0)] = 0.0


class Environment(_Form):
    """Where it ran."""

    hardware: Annotated[str, Field(min_length=1)]
    libs: dict[str, str] = {}


class Evaluation(_Form):
    """The result. Correctness and performance stand there exactly where the status has them."""

    status: Literal["PASSED", "INCORRECT_SHAPE", "INCORRECT_NUMERICAL", "INCORRECT_DTYPE", "RUNTIME_ERROR", "COMPILE_ERROR", "TIMEOUT"]
    environment: Environment
    timestamp: Annotated[str, Field(min_length=1)]
    log: str = ""
    correctness: Correctness | None = None
    performance: Performance | None = None

    @model_validator(mode="after")
    def _as_the_status_says(self) -> Evaluation:
        wanted = {"PASSED": (True, True), "INCORRECT_NUMERICAL": (True, False)}.get(self.status, (False, False))
        if (self.correctness is not None, self.performance is not None) != wanted:
            raise ValueError(f"{self.status} does not go with this correctness and performance")
        return self


class Trace(_Form):
    """One evaluation of a solution on a workload; a workload alone where there is neither."""

    definition: Annotated[str, Field(min_length=1)]
    workload: Workload
    solution: str | None = None
    evaluation: Evaluation | None = None


Form = TypeVar("Form", Definition, Solution, Trace)


# ---------------------------------------------------------------------------------------------------------------- files

def read(file: Path, form: type[Form]) -> list[Form]:
    """The objects of a `.json` or `.jsonl` file. Raises KirError KIR-G110 with the line and the field."""
    try:
        text = file.read_text(encoding="utf-8")
    except OSError as gone:
        raise error("KIR-G110", f"{file}: {gone.strerror}") from None
    parts = [(i, row) for i, row in enumerate(text.splitlines(), 1) if row.strip()] if file.suffix == ".jsonl" else [(1, text)]
    out = []
    for number, row in parts:
        try:
            out.append(form.model_validate_json(row))
        except ValidationError as bad:
            first = bad.errors()[0]
            where = ".".join(str(p) for p in first["loc"])
            raise error("KIR-G110", f"{file}:{number}: {where + ': ' if where else ''}{first['msg']}", subject=form.__name__) from None
    return out


def text_of(form: Definition | Solution | Trace) -> str:
    """One line of JSON, which `read` reads back."""
    return json.dumps(json.loads(form.model_dump_json(exclude_none=False)), sort_keys=True)


# -------------------------------------------------------------------------------------------------------- from KIR's own

def definition_of(problem: Problem) -> Definition:
    """A problem as a definition: its sizes are var axes, its reference runs in float64 and is rounded at the end. An extent that is computed from
    sizes is an axis of its own, with a constraint; a size that no input's extent gives is a scalar input too."""
    axes: dict[str, Axis] = {name: Axis(type="var") for name in problem.shapes[0].sizes}
    bindings: dict[str, tuple[str, int]] = {}
    constraints = [fact.replace("//", " // ") for fact in problem.spec.facts]
    inputs: dict[str, TensorSpec] = {}
    outputs: dict[str, TensorSpec] = {}
    for t in problem.spec.tensors:
        shape = []
        for place, extent in enumerate(t.shape):
            if extent.isdigit():
                axes.setdefault(f"extent_{extent}", Axis(type="const", value=int(extent)))
                shape.append(f"extent_{extent}")
            elif extent in axes:
                shape.append(extent)
                if t.role != "out":
                    bindings.setdefault(extent, (t.name, place))
            else:
                name = _computed(t.name, place)
                axes[name] = Axis(type="var", description=extent)
                constraints.append(f"{name} == {extent}")
                shape.append(name)
        spec = TensorSpec(shape=shape, dtype=DTYPES[problem.tensor_dtype(t)])
        if t.role != "out":
            inputs[t.name] = spec
        if t.role != "in" and not t.optional:
            outputs[t.name] = spec
    scalars = {name: TensorSpec(shape=None, dtype="float32") for name in problem.spec.scalars}
    scalars |= {name: TensorSpec(shape=None, dtype="int32", description="a size that no input's extent gives") for name in _unbound(problem)}
    name = problem.name.replace(":", "_")
    return Definition(name=name, op_type=problem.spec.operator.replace(" ", "_"), axes=axes, inputs={**inputs, **scalars}, outputs=outputs,
                      reference=_reference(problem, list(inputs), list(scalars), outputs, bindings), description=problem.spec.title,
                      constraints=constraints or None)


def _computed(tensor: str, place: int) -> str:
    """The axis of an extent that is computed from sizes."""
    return f"extent_of_{tensor}_{place}"


def _unbound(problem: Problem) -> list[str]:
    """Sizes that the reference is given and no input's extent says."""
    given = {extent for t in problem.spec.tensors if t.role != "out" for extent in t.shape}
    return [] if isinstance(problem, ModelProblem) else [x for x in problem.shapes[0].sizes if x not in given]


def _axes_at(problem: Problem, sizes: Mapping[str, int]) -> dict[str, int]:
    """Values of the var axes."""
    computed = {_computed(t.name, place): evaluate(extent, sizes) for t in problem.spec.tensors for place, extent in enumerate(t.shape)
                if not extent.isdigit() and extent not in sizes}
    return {**sizes, **computed}


def _reference(problem: Problem, inputs: list[str], scalars: list[str], outputs: Mapping[str, TensorSpec],
               bindings: Mapping[str, tuple[str, int]]) -> str:
    if isinstance(problem, ModelProblem):
        return problem.reference_text
    sizes = [f"{axis!r}: {tensor}.shape[{place}]" for axis, (tensor, place) in bindings.items()]
    sizes += [f"{k!r}: {v!r}" for k, v in problem.spec.constants.items()] + [f"{s!r}: {s}" for s in scalars]
    given = ", ".join(f"{x!r}: {x}" for x in inputs)
    made = ", ".join(f"torch.from_numpy(numpy.ascontiguousarray(exact[{o!r}])).to(torch.{spec.dtype}).to({inputs[0]}.device)" for o, spec in outputs.items())
    return (problem.reference_folder / "reference.py").read_text() + "\n".join([
        "", "", f"def run({', '.join([*inputs, *scalars])}):", "    import numpy", "    import torch",
        f"    wide = {{k: (v.double() if v.is_floating_point() else v.long()).cpu().numpy() for k, v in {{{given}}}.items()}}",
        f"    exact = oracle(wide, {{{', '.join(sizes)}}})", f"    return {made}", ""])


def solution_of(verdict: Verdict, definition: str) -> Solution:
    """What was compiled, as a solution. Raises KirError KIR-G111 where nothing was written."""
    if verdict.emitted is None:
        raise error("KIR-G111", "no backend wrote this program, so there is no source to give", subject=definition)
    file = FILES[verdict.compile.surface]
    targets = [str(verdict.device.device["name"])] if verdict.device else [a.target for a in verdict.artifacts]
    spec = Spec(language=verdict.compile.surface, target_hardware=[t.replace(" ", "_") for t in targets],
                entry_point=f"{file}::{verdict.emitted.entries[0].function}", dependencies=[f"{k} {v}" for k, v in sorted(verdict.tools.items())])
    return Solution(name=f"{definition}_{verdict.program[:12]}", definition=definition, author="kir", spec=spec,
                    sources=[Source(path=file, content=verdict.emitted.text)], description=f"program {verdict.program}")


def traces_of(verdict: Verdict, problem: Problem) -> list[Trace]:
    """A trace for each measured shape; one for the shape that was refused where none was."""
    definition, name = problem.name.replace(":", "_"), f"{problem.name.replace(':', '_')}_{verdict.program[:12]}"
    inputs = {t.name: Input(type="random") for t in problem.spec.tensors if t.role != "out"}
    inputs |= {k: Input(type="scalar", value=v) for k, v in problem.spec.scalars.items()}
    hardware = str(verdict.device.device["name"]) if verdict.device else "modelled"
    about = Environment(hardware=hardware.replace(" ", "_"), libs=dict(verdict.tools))
    now = datetime.now(UTC).isoformat(timespec="seconds")
    runs = verdict.correctness.runs if verdict.correctness else ()

    def one(sizes: Mapping[str, int], status: str, seconds: float = 0.0, reference: float = 0.0) -> Trace:
        worst = max((r.worst for r in runs), default=math.nan)
        right = Correctness(max_relative_error=math.nan, max_absolute_error=math.nan, extra={"error_over_bound": worst if math.isfinite(worst) else str(worst)})
        time = Performance(latency_ms=seconds * 1e3, reference_latency_ms=reference * 1e3, speedup_factor=reference / seconds if seconds else 0.0)
        result = Evaluation.model_validate({
            "status": status, "environment": about, "timestamp": now, "log": verdict.reason,
            "correctness": right if status in ("PASSED", "INCORRECT_NUMERICAL") else None, "performance": time if status == "PASSED" else None})
        scalars = {name: Input(type="scalar", value=sizes[name]) for name in _unbound(problem)}
        workload = Workload(uuid=str(uuid.uuid4()), axes=_axes_at(problem, sizes), inputs={**inputs, **scalars})
        return Trace(definition=definition, workload=workload, solution=name, evaluation=result)

    if verdict.accepted:
        panel = verdict.device.panel if verdict.device else ()
        best = {s: min((float(r["median"]) for r in panel if r["shape"] == s and "median" in r), default=0.0) for s in {str(r["shape"]) for r in panel}}
        return [one(problem.shape(row.shape).sizes, "PASSED", row.seconds, best.get(row.shape, 0.0)) for row in verdict.profile if row.kind == "measured"]
    failed = next((r for r in runs if not r.ok), None)
    sizes = failed.sizes if failed else problem.shapes[0].sizes
    words = (("did not answer", "TIMEOUT"), ("CUDA_ERROR", "RUNTIME_ERROR"), ("process died", "RUNTIME_ERROR"))
    status = "COMPILE_ERROR" if verdict.stage == "compile" else next((s for w, s in words if w in verdict.reason), "INCORRECT_NUMERICAL")
    return [one(sizes, status)]


def written(folder: Path, verdict: Verdict, problem: Problem) -> None:
    """Write the definition and the solution, and add the traces. Raises KirError KIR-G111."""
    definition = definition_of(problem)
    write_atomic(folder / "definitions" / definition.op_type / f"{definition.name}.json", text_of(definition) + "\n")
    if verdict.emitted is not None:
        solution = solution_of(verdict, definition.name)
        write_atomic(folder / "solutions" / "kir" / definition.op_type / definition.name / f"{solution.name}.json", text_of(solution) + "\n")
    traces = folder / "traces" / "kir" / definition.op_type / f"{definition.name}.jsonl"
    before = traces.read_text(encoding="utf-8") if traces.is_file() else ""
    write_atomic(traces, before + "".join(text_of(t) + "\n" for t in traces_of(verdict, problem)))
