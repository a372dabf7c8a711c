"""A problem: what `problem.toml`, `reference.py` and `naive.kir` say together: shapes, inputs, oracle, error bounds, the naive program."""
from __future__ import annotations

import hashlib
import importlib.util
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol, Self, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from kir.base.dataclass import dataclass
from kir.base.diagnostic import KirError, Origin, did_you_mean, error, usage
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.parser import parse_program
from kir.ir.types import DTYPES, I32, DType, PointerType, TileType, Type, dtype_of
from kir.ir.visit import once_for_each, substitute, transform
from kir.problem import comparison
from kir.problem.comparison import Comparison
from kir.problem.draws import (
    AROUND,
    AT,
    OFFSET,
    TIMES,
    WITHIN,
    around,
    draw,
    generator,
    numpy_dtype,
    offset,
    placed,
    smallest_step,
    times,
    unit_roundoff,
    within,
)
from kir.problem.ordering import INDEPENDENT, ordered, split
from kir.problem.schema import Draw, Number, ProblemFile, SetWithTies, Shape, State, Tensor, WorkItem, evaluate

Array = NDArray[Any]
Arrays = dict[str, Array]
T = TypeVar("T")

KEPT, KEPT_BYTES = 1 << 26, 1 << 21
"""Bytes of inputs that are kept, and of right outputs, and bytes of one set beyond which it is not: the programs of a walk meet the same ones."""
LOWER = {"f64": "f32", "f32": "bf16", "f16": "f8e4m3", "bf16": "f8e4m3", "f8e4m3": "f8e5m2"}
"""The next lower precision: what a kernel must not have computed in."""


class Reference(Protocol):
    """What `reference.py` defines."""

    def oracle(self, inputs: Mapping[str, Array], sizes: Mapping[str, Number]) -> Arrays:
        """The outputs in float64 (integers in int64); `inputs` are float64, `sizes` hold sizes, constants and scalars."""

    def magnitudes(self, inputs: Mapping[str, Array], sizes: Mapping[str, Number]) -> dict[str, Arrays]:
        """By name, what the error bound scales with: per output, an array that broadcasts to it."""


@dataclass(frozen=True)
class Problem:
    """A problem at one dtype `T`."""

    spec: ProblemFile
    dtype: str
    folder: Path
    reference_folder: Path

    @property
    def name(self) -> str:
        """Its name, with the dtype where there are several: `gemm:bf16`."""
        return self.spec.name if len(self.spec.dtypes) < 2 or self.dtype == self.spec.dtypes[0] else f"{self.spec.name}:{self.dtype}"

    def on_device(self) -> Self:
        """The same problem of outputs that a device has computed: they may have the errors of its units."""
        errors = tuple(term.model_copy(update={"device": False}) for term in self.spec.errors)
        return replace(self, spec=self.spec.model_copy(update={"errors": errors}))

    @property
    def shapes(self) -> tuple[Shape, ...]:
        """All shapes that a kernel is checked on."""
        return self.spec.shapes

    @property
    def work_item(self) -> WorkItem:
        """What one thread of the naive program computes."""
        return self.spec.work_item

    @property
    def state(self) -> tuple[State, ...]:
        """Private arrays that a work item may hold."""
        return self.spec.state

    @property
    def distributions(self) -> tuple[str, ...]:
        """Names of the input distributions, `normal` first."""
        return ("normal", *sorted(set(self.spec.distributions) - {"normal"}))

    def shape(self, name: str, also: str = "") -> Shape:
        """A shape by name; `also` is what else could be given. Raises UsageError KIR-G902."""
        for s in self.shapes:
            if s.name == name:
                return s
        names = [s.name for s in self.shapes]
        raise usage("KIR-G902", f"problem '{self.name}' has no shape '{name}'", attempt=did_you_mean(name, names),
                    needs=f"one of {('; ' if any(',' in each for each in names) else ', ').join(names)}{also}")

    def tagged(self, *tags: str) -> tuple[Shape, ...]:
        """The shapes that have one of these tags."""
        return tuple(s for s in self.shapes if set(s.tags) & set(tags))

    def timed_for(self, program: n.Program) -> tuple[Shape, ...]:
        """The shapes of `shapes_for` that are timed when none is asked for by name."""
        return tuple(s for s in self.shapes_for(program) if "timed" in s.tags and "asked" not in s.tags)

    def shapes_for(self, program: n.Program) -> tuple[Shape, ...]:
        """The shapes at which every fact of `program` holds: where it may be called."""
        return tuple(s for s in self.shapes if self._takes(program, s))

    def _takes(self, program: n.Program, shape: Shape) -> bool:
        """Whether facts and extents of a program agree with the sizes of a shape; what is not known from them is not against it."""
        of = {t.name: self.tensor_shape(t, shape) for t in self.spec.tensors}
        known = {p.name: shape.sizes[p.name] for p in program.params if isinstance(p.of, DType) and p.name in shape.sizes}
        pairs: list[tuple[n.Expr, int]] = []
        for p in program.params:
            if isinstance(p.of, n.Buffer) and len(extents := of.get(str(dict(p.attrs).get("tensor", p.name)), ())) == len(p.of.shape):
                pairs += zip(p.of.shape, extents, strict=True)
        for d, extent in pairs:
            if isinstance(d, n.Var):
                known.setdefault(d.name, extent)
        constants = {p.name: build.const(known[p.name], p.of) for p in program.params if isinstance(p.of, DType) and p.name in known}
        def disagrees(e: n.Expr, wanted: int | None) -> bool:
            value = substitute(e, constants)
            return isinstance(value, n.Const) and (not value.value if wanted is None else value.value != wanted)
        return not any(disagrees(f, None) for f in program.facts) and not any(disagrees(d, extent) for d, extent in pairs)

    def sizes_of(self, program: n.Program, shape: Shape) -> Mapping[str, int]:
        """The sizes of a shape, and those that a program calls otherwise, by the extents of its tensors."""
        of = {t.name: self.tensor_shape(t, shape) for t in self.spec.tensors}
        own = {p.name for p in program.params if isinstance(p.of, DType)} - shape.sizes.keys()
        more: dict[str, int] = {}
        for p in program.params if own else ():
            if isinstance(p.of, n.Buffer) and len(extents := of.get(str(dict(p.attrs).get("tensor", p.name)), ())) == len(p.of.shape):
                more |= {d.name: extent for d, extent in zip(p.of.shape, extents, strict=True) if isinstance(d, n.Var) and d.name in own}
        return {**shape.sizes, **more} if more else shape.sizes

    def admits(self, shape: Shape) -> bool:
        """Whether the problem can be posed at a shape that it does not list, whose facts hold."""
        return True

    @property
    def computed_by(self) -> bytes:
        """The text of its reference; empty where that is no file of its folder."""
        reference = self.reference_folder / "reference.py"
        return reference.read_bytes() if reference.is_file() else b""

    @property
    def always(self) -> tuple[str, ...]:
        """Distributions that no verdict goes without."""
        return ()

    @property
    def lengths(self) -> tuple[str, ...]:
        """Distributions that draw whole numbers of an input in a way of their own: lengths that end within what is padded to the longest, say."""
        whole = {t.name for t in self.spec.tensors if t.role == "in" and DTYPES[self.tensor_dtype(t)].is_integer}
        return tuple(d for d in self.distributions if d != "normal" and d not in self.always and not whole.isdisjoint(self.spec.distributions[d]))

    @property
    def ranges(self) -> dict[str, tuple[int, int]]:
        """Of inputs of whole numbers that are drawn from a range: the least that a distribution draws, and one more than the most."""
        drawn = {t.name: [d[t.name] for d in self.spec.distributions.values() if t.name in d and d[t.name].kind == "integers"]
                 for t in self.spec.tensors if t.role == "in" and DTYPES[self.tensor_dtype(t)].is_integer}
        return {name: (int(min(d.low for d in draws)), int(max(d.high for d in draws))) for name, draws in drawn.items() if draws}

    @property
    def drawn_by_host(self) -> bool:
        """Whether no device can draw the inputs: each of their elements depends on others."""
        return any(d.kind == "partition" for d in self.spec.distributions["normal"].values())

    @property
    def signed_zeros(self) -> bool:
        """Whether the sign of a zero counts, as where values are only moved: a problem says so by drawing -0.0. Elsewhere IEEE leaves it open (the larger
        of both zeros may be either)."""
        return any("-0.0" in draw.values for draws in self.spec.distributions.values() for draw in draws.values())

    @property
    def caveats(self) -> tuple[str, ...]:
        """Wrong answers that the check is known to let through; none for a problem that was written for it."""
        return ()

    def tensor_dtype(self, tensor: Tensor) -> str:
        """The dtype of a tensor, with `T` resolved."""
        return self.dtype if tensor.dtype == "T" else tensor.dtype

    def tensor_shape(self, tensor: Tensor, shape: Shape) -> tuple[int, ...]:
        """The extents of a tensor at a shape."""
        return tuple(evaluate(d, shape.sizes) for d in tensor.shape)

    def scalars(self, shape: Shape) -> dict[str, int | float]:
        """Sizes and scalar parameters of a call."""
        return {**shape.sizes, **self.spec.scalars}

    def values(self, shape: Shape) -> dict[str, Number]:
        """Sizes, scalars and constants: what `reference.py` sees."""
        return {**shape.sizes, **self.spec.scalars, **self.spec.constants}

    # -------------------------------------------------------------------------------------------------- inputs and oracle
    def usual_draw(self, t: Tensor) -> Draw:
        """How the elements of an input are drawn where no distribution says it."""
        usual = self.spec.distributions["normal"]
        return usual.get(t.name) or usual.get("*") or Draw(kind="normal")

    def widest_drawn(self, inputs: Mapping[str, Array]) -> str:
        """The tensor of floats with the most elements, of those whose elements are drawn one by one; "" where there is none."""
        found = [(-inputs[t.name].size, i, t.name) for i, t in enumerate(self.spec.tensors)
                 if t.name in inputs and unit_roundoff(self.tensor_dtype(t)) and self.usual_draw(t).kind in INDEPENDENT]
        return min(found)[2] if found else ""

    def orderable(self, distribution: str) -> bool:
        """Whether what a distribution draws may be put in any order, all of it."""
        return all(draw.kind in INDEPENDENT for draw in self.spec.distributions[distribution].values())

    def inputs(self, shape: Shape | str, seed: int = 0, distribution: str = "normal") -> Arrays:
        """The arrays of `in` and `inout` tensors; the same for the same arguments, everywhere. A distribution may say in which order
        (`kir.problem.ordering`), or be called `around` or `times` and a number (`kir.problem.draws`). Raises KirError KIR-G902, KIR-G903."""
        at = self.shape(shape) if isinstance(shape, str) else shape
        base, ordering = split(distribution)
        value = base.removeprefix(AROUND) if base.startswith(AROUND) and base not in self.spec.distributions else ""
        scale = base.removeprefix(TIMES) if base.startswith(TIMES) and base not in self.spec.distributions else ""
        told = base.removeprefix(AT) if base.startswith(AT) and base not in self.spec.distributions else ""
        moved = base.removeprefix(OFFSET) if base.startswith(OFFSET) and base not in self.spec.distributions else ""
        inside = base == WITHIN and base not in self.spec.distributions
        if value or scale or told or moved or inside:
            base = "normal"
        if base not in self.spec.distributions:
            raise usage("KIR-G903", f"problem '{self.name}' has no distribution '{base}'",
                        attempt=did_you_mean(base, self.distributions), needs=f"one of {', '.join(self.distributions)}")
        draws = self.spec.distributions[base]

        def how(t: Tensor) -> Draw:
            return draws.get(t.name) or draws.get("*") or self.usual_draw(t)
        out: Arrays = {}
        for t in self.spec.tensors:
            if t.role != "out":
                random = generator(self.spec.name, base, seed, t.name, sorted(at.sizes.items()))
                out[t.name] = draw(how(t).at(at.sizes), self.tensor_shape(t, at), self.tensor_dtype(t), random)
        if value and (largest := self.widest_drawn(out)):
            out[largest] = around(out[largest], float(value), generator(self.spec.name, value, seed, largest), seed)
        if told:
            out = placed(told, out, generator(self.spec.name, told, seed))
        if moved:
            out = offset(moved, out)
        for name, (low, high) in self.ranges.items() if inside else ():
            least, most = max(low, -1), min(high, 2 + max(at.sizes.values(), default=0))
            if least < most:
                out[name] = within(out[name].shape, least, most, seed, generator(self.spec.name, WITHIN, name)).astype(out[name].dtype)
        for t in self.spec.tensors if scale else ():
            if t.name in out and unit_roundoff(self.tensor_dtype(t)) and self.usual_draw(t).kind in INDEPENDENT:
                out[t.name] = times(out[t.name], float(scale))
        return out if ordering is None else ordered(out, self.spec.tensors, ordering, seed, how)

    def drawn(self, shape: Shape, seed: int, distribution: str) -> Mapping[str, Array]:
        """As `inputs`, drawn once as long as it is asked for again; not to be written."""
        key = (str(sorted(shape.sizes.items())), seed, distribution)
        found = self._drawn.pop(key, None)
        if found is None:
            found = self.inputs(shape, seed, distribution)
            for a in found.values():
                a.setflags(write=False)
        if sum(a.nbytes for a in found.values()) <= KEPT_BYTES:
            self._drawn[key] = found
            _bounded(self._drawn, lambda held: sum(a.nbytes for a in held.values()))
        return found

    @cached_property
    def _drawn(self) -> dict[Any, Arrays]:
        """Inputs by sizes, seed and distribution, the last asked for last."""
        return {}

    @cached_property
    def reference(self) -> Reference:
        """The module `reference.py`. Raises KirError KIR-G904 where there is none, where it cannot be imported, and when it lacks one of its two
        functions."""
        path = self.reference_folder / "reference.py"
        spec = importlib.util.spec_from_file_location(f"kir_reference_{self.reference_folder.name}", path)
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        with _foreign(path):
            spec.loader.exec_module(module)
        if missing := [f for f in ("oracle", "magnitudes") if not hasattr(module, f)]:
            raise error("KIR-G904", f"{path} does not define {' and '.join(missing)}")
        return cast(Reference, module)

    def _exact(self, wide: Mapping[str, Array], at: Shape) -> Arrays:
        """What `oracle` of the reference gives, of the shapes that are asked for. Raises KirError KIR-G904, and KIR-G907 for inputs that the problem is not
        defined for."""
        reference, path = self.reference, self.reference_folder / "reference.py"
        for name, kind in self.spec.numbers.items():
            given = wide.get(name, np.zeros(0))
            wrong = np.argwhere(np.isnan(given) if kind == "not nan" else ~np.isfinite(given)).tolist()
            if wrong:
                raise error("KIR-G907", f"{name}{wrong[0]} is {given[tuple(wrong[0])]}, and problem '{self.name}' is of elements that are {kind}",
                            subject=name, needs=f"inputs that are {kind}")
        with _foreign(path):
            found = reference.oracle(wide, self.values(at))
        if not isinstance(found, Mapping):
            raise error("KIR-G904", f"{path}: oracle gives {type(found).__name__}, not a dict of outputs")
        for t in self._outputs():
            if t.name not in found and not t.optional:
                raise error("KIR-G904", f"{path}: oracle gives no '{t.name}'", needs=f"outputs by name: {', '.join(x.name for x in self._outputs())}")
            if t.name in found and np.shape(found[t.name]) != self.tensor_shape(t, at):
                raise error("KIR-G904", f"{path}: at shape '{at.name}' oracle gives '{t.name}' as {list(np.shape(found[t.name]))}, where it is "
                            f"{list(self.tensor_shape(t, at))}")
        return {k: np.asarray(v) for k, v in found.items()}

    def oracle(self, inputs: Mapping[str, Array], shape: Shape | str) -> Arrays:
        """The outputs in float64 (int64 for integers), from inputs as they are on the device."""
        at = self.shape(shape) if isinstance(shape, str) else shape
        return self._exact(_widened(inputs), at)

    def bounds(self, inputs: Mapping[str, Array], shape: Shape | str, oracle: Mapping[str, Array] | None = None) -> Arrays:
        """The absolute error that each element of each output may have."""
        at = self.shape(shape) if isinstance(shape, str) else shape
        wide, values = _widened(inputs), self.values(at)
        exact, reference, path = self._exact(wide, at) if oracle is None else oracle, self.reference, self.reference_folder / "reference.py"
        with _foreign(path):
            magnitudes = reference.magnitudes(wide, values)
        out: Arrays = {}
        for t in (x for x in self._outputs() if x.name in exact):
            bound = np.zeros(exact[t.name].shape)
            for term in self.spec.errors:
                if (term.outputs and t.name not in term.outputs) or term.device:
                    continue
                if term.over != "result" and t.name not in magnitudes.get(term.over, {}):
                    raise error("KIR-G904", f"{path}: magnitudes gives no '{term.over}' of '{t.name}', which an error term scales with")
                over = np.abs(exact[t.name]) if term.over == "result" else magnitudes[term.over][t.name]
                eps = self.tensor_dtype(t) if term.eps == "out" else self.dtype if term.eps == "T" else term.eps
                bound = bound + term.factor(values) * (smallest_step(eps) / 2 if term.subnormal else unit_roundoff(eps)) * over
            out[t.name] = bound
        return out

    def compare(self, outputs: Mapping[str, Array], inputs: Mapping[str, Array], shape: Shape | str) -> Comparison:
        """Whether `outputs` (by tensor name) are right for `inputs` (as they were before the call)."""
        at = self.shape(shape) if isinstance(shape, str) else shape
        return self.compare_with(outputs, inputs, at, lambda: self._expected(inputs, at))

    def compare_with(self, outputs: Mapping[str, Array], inputs: Mapping[str, Array], at: Shape, expected: Callable[[], tuple[Arrays, Arrays]]) -> Comparison:
        """As `compare`, where `expected` gives what the oracle says of the inputs and the bounds of it; not asked for outputs of a wrong form."""
        tensors = self._outputs()
        for t in tensors:
            if refused := comparison.check_form(outputs, t, self.tensor_dtype(t), self.tensor_shape(t, at)):
                return refused
        exact, bounds = expected()
        relation = self.spec.relation
        if isinstance(relation, SetWithTies):
            return comparison.set_with_ties(relation, outputs, inputs, exact)
        return comparison.worst_of([
            comparison.elementwise(t.name, self.tensor_dtype(t), outputs[t.name], exact[t.name], bounds[t.name], self.spec.norm, self.signed_zeros)
            for t in tensors if t.name in outputs])

    def expected(self, inputs: Mapping[str, Array], at: Shape) -> tuple[Arrays, Arrays]:
        """What the oracle says of inputs, and the bounds of it (none of a set)."""
        exact = self.oracle(inputs, at)
        return exact, {} if isinstance(self.spec.relation, SetWithTies) else self.bounds(inputs, at, exact)

    def _expected(self, inputs: Mapping[str, Array], at: Shape) -> tuple[Arrays, Arrays]:
        """What the oracle says of inputs, and the bounds (none of a set); kept for the last few small inputs, on which many programs are judged."""
        small = sum(v.nbytes for v in inputs.values()) <= KEPT_BYTES
        key = (str(sorted(at.sizes.items())), *((k, str(v.dtype), v.shape, hashlib.sha256(v.tobytes()).digest()) for k, v in inputs.items())) if small else ()
        found = self._kept.pop(key, None) if small else None
        if found is None:
            found = self.expected(inputs, at)
        if small and sum(v.nbytes for part in found for v in part.values()) <= KEPT_BYTES:
            self._kept[key] = found
            _bounded(self._kept, lambda held: sum(v.nbytes for part in held for v in part.values()))
        return found

    @cached_property
    def _kept(self) -> dict[Any, tuple[Arrays, Arrays]]:
        """What the oracle said, by shape and inputs, the last asked for last."""
        return {}

    def rounded(self, exact: Mapping[str, Array]) -> Arrays:
        """Oracle outputs rounded to the dtypes of the tensors: a perfect answer."""
        with np.errstate(over="ignore", invalid="ignore"):
            return {t.name: exact[t.name].astype(numpy_dtype(self.tensor_dtype(t))) for t in self._outputs() if t.name in exact}

    def _outputs(self) -> tuple[Tensor, ...]:
        return tuple(t for t in self.spec.tensors if t.role != "in")

    def forgeries(self, inputs: Mapping[str, Array], shape: Shape | str) -> dict[str, Arrays]:
        """Wrong answers that a weak check lets through, by name: each must fail `compare`, except on shapes tagged `one`."""
        at = self.shape(shape) if isinstance(shape, str) else shape
        exact = self._expected(inputs, at)[0]
        right = self.rounded(exact)
        out = {"zeros": {k: np.zeros_like(v) for k, v in right.items()},
               "mean": self.rounded({k: np.full_like(v, np.asarray(v, np.float64).mean()) for k, v in exact.items()}),
               "nan": {k: np.full_like(v, np.nan) if _is_float(v) else np.full_like(v, -1) for k, v in right.items()}}
        first = next(iter(inputs.values())).astype(np.float64).ravel()
        out["input"] = self.rounded({k: np.resize(first, v.shape) for k, v in exact.items()})
        if any(_has_lower(v) for v in inputs.values()):
            out["lower-precision inputs"] = self.rounded(self.oracle({k: _lowered(v) for k, v in inputs.items()}, at))
        if any(_has_lower(v) for v in right.values()):
            out["lower-precision outputs"] = {k: _lowered(v) for k, v in right.items()}
        last = {k: v.copy() for k, v in right.items()}
        for v in last.values():
            v.reshape(-1)[_telling(v)] = 0
        out["last element skipped"] = last
        if all(v.size == 1 for v in right.values()):
            del out["mean"]  # of one element, its mean is the answer
        return out

    # -------------------------------------------------------------------------------------------------------- the program
    @cached_property
    def naive(self) -> n.Program:
        """The program that satisfies predicate N, at this dtype. Raises KirError of the parser, located in `naive.kir`."""
        path = self.folder / "naive.kir"
        program = parse_program(path.read_text(), str(path))
        if not self.spec.dtypes or self.dtype == self.spec.dtypes[0]:
            return program
        return with_storage(program, DTYPES[self.spec.dtypes[0]], DTYPES[self.dtype])


def shape_of(problem: Problem, text: str) -> Shape:
    """A shape by its name, or by its sizes (`M=64,N=64,K=64`). Raises UsageError KIR-G902 for no such name or wrong sizes."""
    if "=" not in text:
        return problem.shape(text, f"; or sizes, as in {','.join(f'{k}={v}' for k, v in problem.shapes[-1].sizes.items())}")
    parts = {name.strip(): value.strip() for name, _, value in (part.partition("=") for part in text.split(","))}
    wanted = list(problem.shapes[0].sizes)
    wrong = [f"'{name}' is no size of it" for name in parts if name not in wanted]
    wrong += [f"{name} is not given" for name in wanted if name not in parts]
    wrong += [f"{name} = '{value}'" for name, value in parts.items() if not value.isdigit() or not (int(value) or _may_be_none(problem, name))]
    wrong += [f"{name} = {value} is more than {I32.range[1]}" for name, value in parts.items() if not wrong and int(value) > I32.range[1]]
    wrong += [f"'{fact}' does not hold" for fact in problem.spec.facts if not wrong and not evaluate(fact, {k: int(v) for k, v in parts.items()})]
    if wrong:
        raise usage("KIR-G902", f"'{text}' gives no sizes of problem '{problem.name}': {wrong[0]}", needs=f"a name, or {','.join(f'{w}=1' for w in wanted)}")
    sizes = {name: int(parts[name]) for name in wanted}
    known = next((s for s in problem.shapes if s.sizes == sizes), None)
    return known or Shape(name=" ".join(f"{k}{v}" for k, v in sizes.items()), tags=("timed", "asked"), sizes=sizes)


def with_storage(program: n.Program, old: DType, new: DType) -> n.Program:
    """`program` with every buffer, value, literal and cast of dtype `old` made `new`: the same algorithm over another storage dtype."""
    def of(t: Type) -> Type:
        if isinstance(t, TileType):
            return TileType(new if t.dtype == old else t.dtype, t.shape)
        if isinstance(t, PointerType):
            return PointerType(new if t.dtype == old else t.dtype, t.space)
        return new if t == old else t

    def leave(before: n.Node, node: n.Node) -> n.Node:
        match node:
            case n.Call(fn="pack" | "unpack") if old.bits != new.bits and isinstance(before, n.Call) and (dtype_of(before.type) == old or any(
                    isinstance(a, n.Expr) and dtype_of(a.type) == old for a in before.args)):
                raise TypeError(f"'{node.fn}' takes its bits")
            case n.Buffer() if node.dtype == old:
                return replace(node, dtype=new)
            case n.Const() if node.dtype == old:
                return n.Const(node.value, new)
            case n.Var():
                return replace(node, of=of(node.of))
            case n.Cast() if node.dtype == old:
                return build.cast(node.x, new, node.rounding)
            case n.Param() if node.of == old:
                return replace(node, of=new)
            case n.Call():
                assert node.type is not None  # raises TypeError where it takes the bits of a float
                return node
            case _:
                return node
    try:
        out = transform(program, leave)
    except TypeError as bad:
        raise error("KIR-V002", f"{program.name} cannot have its {old} stored as {new}: {bad}") from bad
    assert isinstance(out, n.Program)
    return out


@once_for_each
def widened(program: n.Program) -> n.Program:
    """`program` with every float in f64, made once of each: what it computes but for rounding. Raises KirError KIR-V002 where it takes the bits of a float."""
    for old in ("f32", "f16", "bf16"):
        program = with_storage(program, DTYPES[old], DTYPES["f64"])
    return program


def _bounded(held: dict[Any, T], size: Callable[[T], int]) -> None:
    """Drop what was asked for longest ago until no more than `KEPT` bytes are held; other threads may be at it too."""
    rows = list(held.items())
    total = sum(size(value) for _, value in rows)
    for oldest, value in rows[:-1]:
        if total <= KEPT:
            break
        held.pop(oldest, None)
        total -= size(value)


def _telling(a: Array) -> int:
    """The last of the largest elements: one that is small beside its bound would not be missed."""
    size = np.nan_to_num(np.abs(a.astype(np.float64)).ravel())
    return int(np.flatnonzero(size >= size.max() / 2)[-1])


def _is_float(a: Array) -> bool:
    return a.dtype.kind not in "iub" or "float" in a.dtype.name


@contextmanager
def _foreign(path: Path) -> Iterator[None]:
    """Whatever a problem's own code raises becomes KIR-G904, at its line."""
    try:
        yield
    except KirError:
        raise
    except (Exception, SystemExit) as fault:
        words = str(fault).strip().splitlines()
        rows = [f for f in traceback.extract_tb(fault.__traceback__) if f.filename == str(path)]
        line = fault.lineno if isinstance(fault, SyntaxError) else rows[-1].lineno if rows else None
        text = path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""
        starts = [0, *(i + 1 for i, c in enumerate(text) if c == "\n")]
        at = (starts[line - 1], starts[line] - 1 if line < len(starts) else len(text)) if line and line <= len(starts) else None
        said = f"there is no {path}" if isinstance(fault, FileNotFoundError) and not path.is_file() else (
            f"{path}: {type(fault).__name__}{': ' + words[0] if words else ''}")
        raise error("KIR-G904", said, origin=Origin.of(str(path), text, *at) if at else None,
                    needs="two functions: oracle(inputs, sizes) and magnitudes(inputs, sizes)") from None


def _widened(inputs: Mapping[str, Array]) -> Arrays:
    return {k: v.astype(np.float64 if _is_float(v) else np.int64) for k, v in inputs.items()}


def _has_lower(a: Array) -> bool:
    return a.dtype in {numpy_dtype(k) for k in LOWER}


def _lowered(a: Array) -> Array:
    names = {numpy_dtype(k): numpy_dtype(v) for k, v in LOWER.items()}
    return a.astype(names[a.dtype]).astype(a.dtype) if a.dtype in names else a


def _may_be_none(problem: Problem, size: str) -> bool:
    """Whether a problem's program says of a size that it is at least zero: what something is padded by."""
    facts = [f for f in problem.naive.facts if isinstance(f, n.Binary) and f.op == "ge" and isinstance(f.a, n.Var) and f.a.name == size]
    return any(isinstance(f.b, n.Const) and f.b.value == 0 for f in facts)
