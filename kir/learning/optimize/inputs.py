"""What may be optimized: a kernel that a frontend reads, a problem's naive program, a recorded call, a FlashInfer-Trace definition. A kernel that no
problem is named for is its own: what is found must compute what it computes."""
from __future__ import annotations

import contextlib
import itertools
import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal

from kir.base.dataclass import dataclass
from kir.base.diagnostic import KirError, error, usage
from kir.base.notices import notices, tell
from kir.gate.cases import elements_of
from kir.gate.goals import ELEMENT_SECONDS, STATEMENT_SECONDS, predicted, promised
from kir.gate.gpu.relative import ProgramProblem, program_problem
from kir.gate.inputs.sets import size_sets, wholes, windows
from kir.gate.proved.unsaid import require_own
from kir.gate.shapes import MOST_ELEMENTS
from kir.ir.binding import Binding
from kir.ir.build import int_value, polynomial
from kir.ir.nodes import Binary, Buffer, For, Program, Var
from kir.ir.types import I32
from kir.ir.visit import regions, statements, walk
from kir.learning.optimize.forms.sized import TILE, numbered, sized
from kir.learning.optimize.hosts.in_a_row import in_a_row
from kir.learning.optimize.judge import modelled, refusal
from kir.learning.optimize.lift import FAULTS
from kir.learning.optimize.plan import Plan, Setting
from kir.learning.optimize.starts import Start, as_launched, left_to_nvcc
from kir.learning.tune.device import with_shape
from kir.problem import Problem, Shape, load_problem
from kir.problem.load import problem_names
from kir.problem.problem import shape_of
from kir.surface.finding import ASSUMED
from kir.surface.oracles import named_for
from kir.surface.reading import as_found, load_expert, located, read_text

USUAL = (8192, 4096, 2048, 1024, 512, 256, 128, 64)
"""Sizes that a kernel is made fast at where none are asked for: the first of them, all alike but for what facts say, that are not too large."""
LONG = (1 << 24, 1 << 22, 1 << 20, 1 << 17)
"""Sizes that are tried before these, all alike: of a kernel of one axis, which has next to nothing to do at the others."""
GROUPS = 64
"""What a size is that others are multiples of: groups of channels, and rows that share a scale, are few."""
LEAST = 1 << 18
"""Elements of the largest tensor from which on the sizes of a call are those to be fast at: a test calls with fewer."""
HALVINGS, MOST_HALVINGS, HALVED = 5, 8, 64
"""Times that sizes of a call are halved to be timed, and to be judged; the least that is."""
CONFIGURATIONS = 32
"""Configurations of a tuner that are looked at, the first of them."""
OWN, WHY = "its own parameters", "tiles, warps and stages are chosen for a device and sizes, and these are others"
"""The family of such plans, and the reason for one."""
KNOWN = "nvcc knows how far a loop goes each round, and asks for several rounds' values at once"
"""Why a kernel whose loops go on by the threads of the launch may be faster with their number."""
VARIED, LEAST_TILE, MOST_TILE = 60, 8, 1024
"""Other values of a kernel's own parameters that are looked at; what a parameter is at least and at most that says how large a tile is."""
LARGEST, SECONDS = 1 << 26, 10.0
"""Elements of the largest tensor at such sizes, and seconds that the interpreter may need, as they are foreseen."""


@dataclass(frozen=True)
class Subject:
    """A program to make faster, what judges it, and where it came from: `file` and `kernel` with their `binding` where there is a source to edit;
    `sizes` where the input says at which."""

    program: Program
    problem: Problem
    surface: str = ""
    file: str = ""
    binding: Path | Binding | None = None
    sizes: Mapping[str, int] | None = None
    assumed: tuple[str, ...] = ()
    """What was taken for granted of the kernel's arguments, as nothing says it: dtypes above all."""
    called: Mapping[str, int] | None = None
    """Sizes that host code calls it with, where it does with numbers."""
    call: bool = False
    """Whether it is a recorded call with numbers for sizes that is too large to be interpreted whole: some of its CTAs are judged, as of a package's calls."""


def subject(file: str, bind: Path | None = None, problem: str = "") -> Subject:
    """The subject of `FILE[::KERNEL]` with a binding or as its host code launches it, a problem alone, a binding that `kir capture` wrote, or a definition
    in JSON. Raises UsageError KIR-U026 where nothing is named, KirError KIR-G108 for a kernel whose sizes are not known, and what reading raises."""
    if not file:
        if not problem:
            raise usage("KIR-U026", "there is nothing to optimize", needs="FILE[::KERNEL], or --problem NAME for its naive program")
        wanted = load_problem(problem)
        return Subject(wanted.naive, wanted)
    if file.endswith(".json"):
        return definition(Path(file))
    if file.endswith(".toml"):
        return captured(Path(file), problem)
    named = load_problem(problem) if problem else None
    binding: Path | Binding | None = bind if bind is not None or named is None else named_for(file, problem)[1]
    if binding is None and named is None and (row := in_a_row(file)) is not None:
        return Subject(row, program_problem(row, row), "cuda", called=called_with(f"{file.partition('::')[0]}::{row.kernels[0].name}"))
    with notices() as said:
        expert = load_expert(file, binding)
    for each in said:
        tell(each)
    require_own(expert.program, expert.unsaid, expert.joined, named)
    if named is None:
        binding = binding or (Binding.parse(expert.binding) if expert.binding else None)
    posed = named if named is not None else program_problem(expert.program, expert.program)
    if named is not None and ":" not in problem:
        posed = _in_its_dtypes(named, expert.program)
    return Subject(expert.program, posed, "" if expert.surface == "kir" else expert.surface, "" if file.endswith(".kir") else file, binding,
                   assumed=tuple(text.removeprefix(ASSUMED) for each in said for text in each.notes if text.startswith(ASSUMED)),
                   called=called_with(file) if named is None and bind is None else None)


def with_sizes(one: Subject) -> Subject:
    """The subject with a number of its file as a size, where nothing is one and its tensors are too large to be interpreted; `sizes` says what that is.
    Another subject is as it is."""
    if not one.file or one.call or not _too_large(one) or (found := sized(one.file, one.program)) is None:
        return one
    said = f"{', '.join(f'{k} = {v}' for k, v in found[1].items())} is tried at other values, and made faster at this one"
    return replace(one, program=found[0], problem=program_problem(found[0], found[0]), sizes=found[1], binding=None, assumed=(said, *one.assumed))


def _too_large(one: Subject) -> bool:
    """Whether nothing of a kernel that is its own problem is a size, and it is too large to be interpreted."""
    large = any(math.prod(int_value(d) or 1 for d in p.of.shape) > MOST_ELEMENTS for p in one.program.params if isinstance(p.of, Buffer))
    fixed = isinstance(one.problem, ProgramProblem) and not any(p.role == "size" for p in one.program.params)
    return fixed and (large or foreseen(one.program, [{}])[0] > SECONDS)


def as_tuned(one: Subject, setting: Setting) -> Subject:
    """The subject in the configuration that the tuner of its file would choose, by the model at the setting's sizes: a kernel that is faster than the first of
    them may be no faster than what its caller has. Another kernel is as it is."""
    if not isinstance(one.binding, Binding) or len(one.binding.configs) < 2:
        return one
    found = list[tuple[float, int, Program, Binding]]()
    for number in range(min(len(one.binding.configs), CONFIGURATIONS)):
        binding = one.binding.configured(number)
        try:
            with notices():
                program = load_expert(one.file, binding).program
            if not refusal(program, setting, one.surface):
                found.append((sum(c.seconds for c in modelled(program, setting, one.surface)), number, program, binding))
        except (KirError, *FAULTS):
            continue  # the first was read, and stays
    if not found:
        return one
    _, number, program, binding = min(found, key=lambda x: x[:2])
    posed = program_problem(program, program) if isinstance(one.problem, ProgramProblem) else one.problem
    chosen = ", ".join(f"{k} = {v}" for k, v in one.binding.configs[number].items())
    said = f"of its tuner's {len(one.binding.configs)} configurations the fastest by the model ({chosen})"
    return replace(one, program=program, problem=posed, binding=binding, assumed=(said, *one.assumed))


def varied(one: Subject, setting: Setting) -> Iterator[tuple[Start, Plan]]:
    """The kernel with other values of its own parameters: compile-time whole numbers that say how large tiles are, threads, warps and stages of its launch.
    Those by which its tensors would be others are left alone. A grid that was counted by such a number follows it. Lazily: what differs
    least first, then what differs least from what seems fastest of these."""
    binding = one.binding
    if not isinstance(binding, Binding) or setting.surface not in ("", one.surface) or binding.configs or binding.heuristics:
        return
    own: dict[str, tuple[int, ...]] = {}
    axes = dict[str, list[int]]()
    if launched(one) is not None:
        yield Start("as it is", left_to_nvcc(one.program)), Plan(OWN, (), KNOWN, family=OWN, surface=one.surface)
    threads = False
    for name, now, read in numbered(one.file, one.program):
        for v in (2 * now, now // 2, 4 * now, now // 4):
            if TILE[0] <= v <= TILE[1] and (made := read(v)) is not None and not refusal(made, setting, one.surface):
                threads |= [k.threads for k in made.kernels] != [k.threads for k in one.program.kernels]
                yield Start("as it is", left_to_nvcc(made)), Plan(OWN, (), WHY, point={name: v}, family=OWN, surface=one.surface)
    for name, value in binding.metas.items():
        if type(value) is int and LEAST_TILE <= value <= MOST_TILE and value & (value - 1) == 0 and not name.startswith(("threads_y", "threads_z")) \
                and not (threads and name.startswith("threads")):
            twice = _read_with(one, binding.changed(metas={**binding.metas, name: 2 * value}))
            if twice is not None and twice.params == one.program.params:
                own[name] = tuple(v for v in (value, 2 * value, value // 2, 4 * value, value // 4) if LEAST_TILE <= v <= MOST_TILE)
                axes[name] = [k for k, (a, b) in enumerate(zip(_steps(one.program), _steps(twice))) if a != b]
                if binding.grid and any(_counted_by(binding.grid[k], {value: 0}) == binding.grid[k] and name not in str(binding.grid[k]) for k in axes[name]):
                    del own[name]  # a row of what it moves over, and no tile
    usual = {"num_warps": (4, 8, 2, 1), **({"num_stages": (3, 2, 4)} if own else {})} if one.surface == "triton" else {}
    launch: dict[str, tuple[int, ...]] = {k: tuple(dict.fromkeys((int(str(binding.options.get(k, v[0]))), *v))) for k, v in usual.items()}
    every = {**own, **launch}
    seen: dict[tuple[int, ...], float] = {}

    def look(chosen: tuple[int, ...]) -> Iterator[tuple[Start, Plan]]:
        if chosen in seen or len(seen) >= VARIED:
            return
        seen[chosen] = math.inf
        values = {k: v[at] for (k, v), at in zip(every.items(), chosen, strict=True)}
        grid = [_counted_by(d, {int(str(binding.metas[m])): values[m] for m in own if k in axes[m]}) for k, d in enumerate(binding.grid)]
        made = _read_with(one, binding.changed(metas={**binding.metas, **{k: values[k] for k in own}}, grid=grid,
                                               options={**binding.options, **{k: values[k] for k in launch if values[k] != launch[k][0]}}))
        if made is not None and made.params == one.program.params and not _leaves_arrays(made) and not refusal(made, setting, one.surface):
            with contextlib.suppress(KirError, *FAULTS):
                seen[chosen] = sum(c.seconds for c in modelled(made, setting, one.surface))
            start = Start("as it is", left_to_nvcc(made) if one.surface == "cuda" else made)
            yield start, Plan(OWN, (), WHY, point={k: v for k, v in values.items() if v != every[k][0]}, family=OWN, surface=one.surface)
    points = sorted(itertools.product(*(range(len(v)) for v in every.values())), key=lambda c: (sum(c), c))[1:]
    for chosen in points[:VARIED // 2]:
        yield from look(chosen)
    best = min(seen, key=lambda c: (seen[c], c), default=())
    for chosen in sorted(points, key=lambda c: (sum(a != b for a, b in zip(c, best)), c)):
        yield from look(chosen)


def _leaves_arrays(program: Program) -> bool:
    """Whether threads name places of a shared array by their own number that it does not have: it was declared for fewer."""
    teams = [s for k in program.kernels for s in statements(k.body) if isinstance(s, For) and s.kind == "thread"]
    return any(i == s.var and (int_value(d) or 0) < (int_value(s.hi) or 0) for s in teams for r in regions(s) if r.buffer.space == "shared"
               for i, d in zip(r.index, r.buffer.shape, strict=False))


def launched(one: Subject) -> Program | None:
    """The kernel of a CUDA file as that has it compiled, where it is another text than KIR's of it."""
    if one.surface != "cuda" or not one.file:
        return None
    made = as_launched(one.program, read_text(located(one.file)[0]))
    return made if made != one.program else None


def _read_with(one: Subject, binding: Binding) -> Program | None:
    try:
        with notices():
            return load_expert(one.file, binding).program
    except (KirError, *FAULTS):
        return None


def _steps(program: Program) -> list[frozenset[int]]:
    """By axis of the grid, what places are multiplied by as it moves."""
    out: list[frozenset[int]] = []
    for axis in (a for k in program.kernels for a in k.grid):
        found = (polynomial(x) for k in program.kernels for s in k.body for x in walk(s) if isinstance(x, Binary) and x.type == I32)
        out.append(frozenset(c for terms in found for atoms, c in terms.items() if any(isinstance(a, Var) and a.name == axis.name for a in atoms)))
    return out


def _counted_by(extent: str | int, values: Mapping[int, int]) -> str | int:
    """An extent of a grid that is a quotient by one of these numbers, by the other that stands for it."""
    if isinstance(extent, int):
        return extent
    return re.sub(r"(, *|// *)(\d+)(?=\)|$)", lambda m: f"{m[1]}{values.get(int(m[2]), int(m[2]))}", extent)


def called_with(file: str) -> Mapping[str, int] | None:
    """The sizes of the launch that a kernel of a source file is read under, where host code calls it with numbers."""
    if file.endswith(".kir"):
        return None
    with notices():
        found, _ = as_found(file)
    return found.examples if found is not None else None


def _in_its_dtypes(named: Problem, program: Program) -> Problem:
    """The problem in the dtypes of the kernel's tensors, where it has them: of a problem of several dtypes its name alone asks for none."""
    dtypes = {p.name: str(p.of.dtype) for p in program.params if isinstance(p.of, Buffer)}

    def agree(problem: Problem) -> bool:
        return all(dtypes.get(t.name, problem.tensor_dtype(t)) == problem.tensor_dtype(t) for t in problem.spec.tensors)

    return named if agree(named) else next((p for d in named.spec.dtypes if agree(p := load_problem(f"{named.folder}:{d}"))), named)


def captured(path: Path, problem: str) -> Subject:
    """The call that a binding of `kir capture` recorded: its first line names the kernel. Raises UsageError KIR-U026."""
    first = read_text(path).split("\n", 1)[0]
    place = first.removeprefix("#").strip()
    if not first.startswith("#") or "::" not in place:
        raise usage("KIR-U026", f"{path} does not name the kernel that it was recorded of", needs="a first line `# FILE::KERNEL`, as `kir capture` writes")
    located(place)
    made = subject(place, path, problem)
    one = Subject(made.program, made.problem, made.surface, place, path, assumed=made.assumed)
    return replace(one, call=_too_large(one))


def definition(path: Path) -> Subject:
    """A FlashInfer-Trace definition of a problem that KIR knows: its name, or that of one with the same tensors. Raises KirError KIR-U027."""
    try:
        held = json.loads(read_text(path))
        name, axes = str(held["name"]), dict(held["axes"])
        inputs, outputs = dict(held["inputs"]), dict(held["outputs"])
    except (ValueError, KeyError, TypeError) as bad:
        raise error("KIR-U027", f"{path} is no definition of FlashInfer-Trace: {bad}", needs="an object with name, axes, inputs and outputs") from bad
    from kir.gate.trace import DTYPES

    dtypes = {theirs: ours for ours, theirs in DTYPES.items()}
    for each in (name, *problem_names()):
        for problem in _posed(each):
            tensors = {t.name: (len(t.shape), problem.tensor_dtype(t)) for t in problem.spec.tensors}
            told = {k: (len(v["shape"]), dtypes.get(v["dtype"], "")) for k, v in {**inputs, **outputs}.items() if v.get("shape") is not None}
            needed = {t.name for t in problem.spec.tensors if not t.optional}
            if needed <= set(told) and all(tensors.get(k) == v for k, v in told.items()):
                return Subject(problem.naive, problem, sizes=_sizes(problem, axes))
    raise error("KIR-U027", f"no problem computes what '{name}' in {path} does", needs=f"a definition of one of {', '.join(problem_names())}")


def _posed(name: str) -> list[Problem]:
    known = name if name in problem_names() else name.partition("_f16")[0].partition("_bf16")[0]
    if known not in problem_names():
        return []
    first = load_problem(known)
    return [first, *(load_problem(f"{known}:{d}") for d in first.spec.dtypes[1:])]


def _sizes(problem: Problem, axes: Mapping[str, Mapping[str, object]]) -> Mapping[str, int] | None:
    """The sizes that a definition fixes, where it fixes all."""
    values = {k: v.get("value") for k, v in axes.items()}
    names = problem.shapes[0].sizes
    return {k: int(str(values[k])) for k in names} if all(values.get(k) is not None for k in names) else None


def sizes_in(shape: str) -> dict[str, int]:
    """The sizes that a shape is asked for by, `M=64,N=64`; none for one that is asked for by its name."""
    parts = dict(part.partition("=")[::2] for part in shape.split(","))
    return {name.strip(): int(value) for name, value in parts.items()} if all(value.strip().isdigit() for value in parts.values()) else {}


def shape_for(one: Subject, text: str, on: Literal["cpu", "gpu"] = "cpu") -> Shape:
    """The shape to be fast at: as asked, as the input says, or the first timed one that the kernel takes; of a kernel that is its own problem, what host code
    calls it with, or usual sizes. Raises UsageError KIR-G902."""
    if text:
        return shape_of(one.problem, text)
    if one.sizes is not None:
        return shape_of(one.problem, ",".join(f"{k}={v}" for k, v in one.sizes.items()))
    if isinstance(one.problem, ProgramProblem) and (usual := _as_called(one, on) or _usual(one.program, one.problem, on)) is not None:
        return usual
    if timed := one.problem.timed_for(one.program):
        return timed[0]
    own = {p.name for p in one.program.params if p.role == "size" and p.value is None}
    if own == one.problem.shapes[0].sizes.keys() and (usual := _usual(one.program, one.problem, on)) is not None and one.problem.admits(usual):
        return usual  # of a kernel that takes none of the timed shapes: small ones say nothing
    found = one.problem.shapes_for(one.program)[-1:]
    if not found:
        raise usage("KIR-G902", f"no shape of '{one.problem.name}' satisfies the kernel's facts", needs="--shape M=..,N=..")
    return found[0]


def _as_called(one: Subject, on: Literal["cpu", "gpu"]) -> Shape | None:
    """The sizes that host code calls a kernel with, where it says all of them, the kernel takes them, and there is something to do at them. On a device they
    are halved until tensors are not too large; where the interpreter has not the time for them, the kernel is judged elsewhere (`judged_for`)."""
    names, called = [p.name for p in one.program.params if p.role == "size" and p.value is None], one.called or {}
    smaller = [{x: called[x] for x in names if x in called}]
    if not names or len(smaller[0]) < len(names):
        return None
    while on == "gpu" and len(smaller) < HALVINGS and any(x % 2 == 0 and x >= HALVED for x in smaller[-1].values()):
        smaller.append({name: x // 2 if x % 2 == 0 and x >= HALVED else x for name, x in smaller[-1].items()})
    found = next((s for _, s in (_small if on == "gpu" else _allowed)(one.program, one.problem, smaller)), None)
    return found if found is not None and elements_of(one.problem, found) >= LEAST else None


def _usual(program: Program, problem: Problem, on: Literal["cpu", "gpu"]) -> Shape | None:
    """Large sizes at which the kernel may be called: all the same, but for those that its facts keep smaller; None where it takes none. On the CPU nothing is
    interpreted at them."""
    return _taken(program, problem, _alike(program), on) or _taken(program, problem, size_sets(program, USUAL), on)


def _alike(program: Program) -> list[dict[str, int]]:
    names = [p.name for p in program.params if p.role == "size" and p.value is None]
    groups = {x for each in wholes(promised(program)).values() for x in each}
    most, small = dict(_kept_small(program)), windows(program)
    return [{x: min(base, most.get(x, base)) for x in names} | dict.fromkeys(groups, min(GROUPS, base // 8)) | small for base in (*LONG, *USUAL) if names]


def usual_sizes(program: Program, called: Mapping[str, int] | None = None) -> dict[str, int]:
    """The sizes to speak of a kernel at, which is not run there: those that it is `called` with, where they are more than a test's, else large ones that its
    facts allow."""
    problem = program_problem(program, program)
    if (found := _as_called(Subject(program, problem, called=called), "cpu")) is not None:
        return {k: int(v) for k, v in found.sizes.items()}
    some = [*_alike(program), *size_sets(program, USUAL)]
    return next((sizes for sizes, _ in _small(program, problem, some)), some[-1] if some else {})


def _taken(program: Program, problem: Problem, some: Iterable[Mapping[str, int]], on: Literal["cpu", "gpu"]) -> Shape | None:
    """The first of these sizes that the kernel takes, of tensors that are not too large to be looked at."""
    small = [*_small(program, problem, some)]
    if on == "cpu":
        return small[0][1] if small else None
    return next((shape for (_, shape), seconds in zip(small, foreseen(program, [sizes for sizes, _ in small]), strict=True) if seconds <= SECONDS), None)


def foreseen(program: Program, some: Sequence[Mapping[str, int]]) -> list[float]:
    """Seconds that the interpreter needs at each of some sizes: what is predicted of a CTA's values, and no less than an element of each statement of each
    of its threads takes."""
    of, threads = predicted(program, some), max((int_value(k.threads) or 1 for k in program.kernels), default=1)
    return [max(float(a), float(b) / STATEMENT_SECONDS * threads * ELEMENT_SECONDS) for a, b in zip(of.seconds, of.stepped, strict=True)]


def judged_for(one: Subject, shape: Shape) -> Shape | None:
    """Where a kernel that is its own problem is judged on a device as a whole, if the interpreter, which says there what is right, has not the time for it
    where it is timed: the largest halves of those sizes for which it has, else the problem's own; None where it has the time."""
    if not isinstance(one.problem, ProgramProblem) or not shape.sizes or foreseen(one.program, [shape.sizes])[0] <= SECONDS:
        return None
    smaller = [dict(shape.sizes)]
    while len(smaller) < MOST_HALVINGS and any(x % 2 == 0 and x >= HALVED for x in smaller[-1].values()):
        smaller.append({name: x // 2 if x % 2 == 0 and x >= HALVED else x for name, x in smaller[-1].items()})
    return _taken(one.program, one.problem, smaller[1:], "gpu") or one.problem.tagged("timed")[0]


def _small(program: Program, problem: Problem, some: Iterable[Mapping[str, int]]) -> Iterator[tuple[dict[str, int], Shape]]:
    """Those of sizes that the kernel takes, and of which no tensor is too large."""
    yield from ((sizes, shape) for sizes, shape in _allowed(program, problem, some) if elements_of(problem, shape) <= LARGEST)


def _allowed(program: Program, problem: Problem, some: Iterable[Mapping[str, int]]) -> Iterator[tuple[dict[str, int], Shape]]:
    """Those of sizes that the kernel takes."""
    for sizes in some:
        shape = Shape(name=", ".join(f"{k}={v}" for k, v in sizes.items()), tags=("timed", "asked"), sizes=dict(sizes))
        if sizes and with_shape(problem, shape).shapes_for(program)[-1:] == (shape,):
            yield dict(sizes), shape


def _kept_small(program: Program) -> Iterator[tuple[str, int]]:
    """Sizes that facts of a program bound from above, each with a value that they allow: `x <= c`, `x == c` and `x // k == c`."""
    for f in program.facts:
        value = int_value(f.b) if isinstance(f, Binary) and f.op in ("le", "eq") else None
        if not isinstance(f, Binary) or value is None:
            continue
        if isinstance(f.a, Var):
            yield f.a.name, value
        elif f.op == "eq" and isinstance(f.a, Binary) and f.a.op == "floordiv" and isinstance(f.a.a, Var) and (k := int_value(f.a.b)):
            yield f.a.a.name, value * k
