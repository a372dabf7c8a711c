"""Host code in the user's own file that launches an edited Triton kernel: grid and options follow the edit, and what is written reads back as the result."""
from __future__ import annotations

import ast
import itertools
import re
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from kir.analysis import normalize
from kir.base.diagnostic import KirError
from kir.ir import nodes as n
from kir.ir.binding import Binding, expressions
from kir.ir.canonical import alpha_equal
from kir.ir.nodes import Program
from kir.ir.printer import expr_text
from kir.ir.types import I32, DType
from kir.ir.visit import names_read, walk
from kir.learning.optimize.hosts import scratch
from kir.learning.optimize.hosts.decorators import worked_out
from kir.learning.optimize.hosts.grids import MAKES, PURE, around_of, grid_of, said_as
from kir.learning.optimize.hosts.read_back import NotSaid, for_readers, reads_back, source_of
from kir.surface import EditingBackend, Emitted, backend
from kir.surface.edits import SourceEdit
from kir.surface.edits.splice import between, lines_of, with_ends_of
from kir.surface.reading import launched, load_expert

CEILDIV = "triton.cdiv"
"""What divides and rounds up in host code."""
OPERATORS = {"add": "+", "sub": "-", "mul": "*", "floordiv": "//", "mod": "%", "eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">=",
             "and": "and", "or": "or"}
"""How Python writes operators."""
POSITIVE = re.compile(r"\w+ >= \d+")
"""Facts that no call breaks."""


def followed(edit: SourceEdit, program: Program, changed: str) -> SourceEdit | None:
    """The edit with the one call in its file that launches its kernel as `program` is launched (`changed` says how that differs); None where there are
    several, where it does not say the sizes that the new grid needs, or where the whole does not read back as the program."""
    text = _relaunched(edit, program)
    if text is None:
        return None
    with tempfile.TemporaryDirectory(prefix="kir-edit-") as folder:
        path = Path(folder) / Path(edit.file).name
        path.write_text(text, encoding="utf-8")
        try:
            binding, _ = launched(place := f"{path}::{edit.kernel}")
            read = load_expert(place, binding).program
        except KirError:
            return None
    if not alpha_equal(normalize(read), normalize(program)):
        return None
    told = f"the launch in this file is edited too ({changed}): one in another file must follow"
    return replace(edit, passed_over=(*edit.passed_over, told), after=text, splices=tuple(between(edit.before, text)), new_binding=edit.binding)


def narrower(edit: SourceEdit) -> list[str]:
    """What an edited kernel takes for granted and the kernel as it was did not, as far as its text shows it: parameters that it does not look at any more, with
    their values by the binding, unless every call in the file gives just a literal; and conversions to a dtype that its tensors have by the binding."""
    before, after = (_function(ast.parse(text), edit.kernel) for text in (edit.before, edit.after))
    if before is None or after is None:
        return []
    kept, literal = _names(after), _literals(edit, before)
    lost = [a.arg for a in (*before.args.args, *before.args.kwonlyargs) if a.arg in _names(before) and a.arg not in kept]
    values = {**edit.binding.scalars, **edit.binding.metas}
    return [*(f"{name} = {values[name]}" if name in values else f"no other {name}" for name in lost if name not in literal),
            *(f"tensors that need no conversion to {x}" for x in sorted(_conversions(before) - _conversions(after)))]


def granted(edit: SourceEdit) -> list[str]:
    """What the reading of a kernel as its host code launches it took for granted and no call in the file says in so many words: compile-time values, strides
    that are other sizes, facts. A changed kernel may rest on each of them, and its text need not show it. Nothing where the kernel did not change."""
    before, after = (_function(ast.parse(text), edit.kernel) for text in (edit.before, edit.after))
    if before is None or after is None or ast.dump(before) == ast.dump(after):
        return []
    grids = [] if _one_grid(edit) else [f"a grid ({', '.join(map(str, edit.binding.grid))})"]
    literal, sizes = _literals(edit, before), Counter(map(str, edit.binding.scalars.values()))
    tied = [f"{name} = {value}" for name, value in edit.binding.scalars.items()
            if name not in literal and name != value and not (isinstance(value, str) and value.isidentifier() and sizes[value] == 1)]
    args = {a.arg for a in (*before.args.args, *before.args.kwonlyargs)}
    return [*grids, *(f"{name} = {value}" for name, value in edit.binding.metas.items() if name in args and name not in literal), *tied,
            *(fact for fact in edit.binding.facts if not POSITIVE.fullmatch(fact)), *(x for x in narrower(edit) if x.startswith("tensors")),
            *([f"tensors of the dtypes that it was read with, as it names {', '.join(sorted(named))}"] if (named := _dtypes(after) - _dtypes(before)) else [])]


def _one_grid(edit: SourceEdit) -> bool:
    """Whether the calls of a file launch a kernel over one grid, whatever way the host code takes."""
    tree, said = ast.parse(edit.before.replace("\r\n", "\n")), list[list[str]]()
    for launch in _launches(tree, edit.kernel):
        assert isinstance(launch.func, ast.Subscript)
        try:
            extents, in_one_way = grid_of(tree, launch, launch.func.slice, edit.binding)
        except NotSaid:
            return False
        if not in_one_way:
            return False
        said.append(extents)
    return all(x == said[0] for x in said)


def _literals(edit: SourceEdit, made: ast.FunctionDef) -> set[str]:
    """The parameters for which every call in a file gives one literal."""
    calls = [_given(call, made) for call in _launches(ast.parse(edit.before), edit.kernel)]
    return {name for given in calls for name in given if all(isinstance(other.get(name), ast.Constant) for other in calls)
            and len({ast.dump(other[name]) for other in calls}) == 1}


TORCH = {"f16": "float16", "bf16": "bfloat16", "f32": "float32", "f64": "float64", "i8": "int8", "i16": "int16", "i32": "int32", "i64": "int64", "u8": "uint8",
         "bool": "bool", "f8e4m3": "float8_e4m3fn", "f8e5m2": "float8_e5m2"}
"""What torch calls dtypes."""
DESCRIBED = "make_tensor_descriptor"
"""What needs memory at a launch, and tensors aligned to 16 bytes."""
ALLOCATOR = 'triton.set_allocator(lambda size, alignment, stream: torch.empty(size, dtype=torch.int8, device="cuda"))'
"""How host code says where that memory comes from."""
SHORT = 88
"""Columns that a condition may have to stand in one line."""
BESIDE = "beside"
"""How far an edit reached that leaves the kernel as it was."""


def beside(path: Path, kernel: str, binding: Binding, program: Program) -> SourceEdit:
    """The edit of a file that puts a program's kernel beside the one that it was made of, and has the one call in the file that launches that launch the new
    one where all holds that the binding takes for granted: grid, values, strides, dtypes, facts. Raises :class:`NotSaid` with the reason where there is no such
    call, where Python's side does not say it all, or where the new kernel is not read in the file as it is by itself, and KirError for what the backend
    refuses."""
    held = source_of(path)
    text, name = held.replace("\r\n", "\n"), f"{kernel}_faster"
    tree, lines = ast.parse(text), lines_of(text)
    made, calls = _function(tree, kernel), _launches(tree, kernel)
    if made is None or made not in tree.body:
        raise NotSaid(f"'{kernel}' is no function of the module")
    if not calls:
        raise NotSaid(f"no launch of '{kernel}' is in it")
    if name in text:
        raise NotSaid(f"it has a '{name}' already")
    if program.tensor_maps or binding.maps or binding.arrays:
        raise NotSaid("the result takes more than the tensors that the kernel has")
    renamed = scratch.renamed(program, name)
    emitted = for_readers(backend("triton"), renamed)
    kernels = ast.parse(emitted.text)
    imports, rest = ([x for x in kernels.body if isinstance(x, ast.Import | ast.ImportFrom) is here] for here in (True, False))
    if lacking := _imported(imports) - _imported(tree.body):
        raise NotSaid(f"it has no '{min(lacking)}'")
    if "multiple_of" in emitted.text or len(rest) != len(renamed.kernels):
        raise NotSaid("the result is more than its kernels")
    told, reasons = list[str](), list[NotSaid]()
    for launch in sorted(calls, key=lambda x: -x.lineno):
        try:
            call = _statement(tree, launch, lines, made)
            written, where = _dispatched(text, tree, call, made, binding, renamed, emitted, len(calls) > 1)
        except KeyError as bad:
            reasons.append(NotSaid(f"nothing that its launch says is '{bad.args[0]}'"))
        except NotSaid as bad:
            reasons.append(bad)
        else:
            assert call.end_lineno is not None
            last = lines[call.end_lineno - 1]
            lines[call.lineno - 1:call.end_lineno] = [written if last.endswith("\n") else written.removesuffix("\n")]
            told.insert(0, where)
    if not told:
        raise reasons[-1]
    new = "".join(lines_of(emitted.text)[min(d.lineno for d in rest[0].decorator_list) - 1:])  # type: ignore[attr-defined]  # a function
    assert made.end_lineno is not None
    after = "".join([*lines[:made.end_lineno], "\n\n", new.rstrip("\n") + "\n", *lines[made.end_lineno:]])
    for function in scratch.in_order(renamed, emitted):
        reads_back(path, after, function, emitted)
    after = with_ends_of(held, after)
    return SourceEdit(str(path), kernel, held, after, tuple(between(held, after)), BESIDE, (_told(name, told, len(reasons)),), binding, binding)


def _told(name: str, where: Sequence[str], others: int) -> str:
    """What a reader of an edit is told of the launches that choose."""
    conditions = "; or ".join(dict.fromkeys(x for x in where if x))
    said = f"the launch{'es' * (len(where) > 1)} in this file take{'s' * (len(where) == 1)} '{name}'"
    return f"the kernel stays, and {said} where {conditions}" + (f"; {others} further stay as they are" if others else "") if conditions else said


def _statement(tree: ast.Module, launch: ast.Call, lines: Sequence[str], made: ast.FunctionDef) -> ast.Expr:
    """The statement of a launch, which may be replaced by others. Raises NotSaid."""
    call = next((s for s in ast.walk(tree) if isinstance(s, ast.Expr) and s.value is launch), None)
    if call is None:
        raise NotSaid("its launch is no statement")
    assert call.end_lineno is not None and made.end_lineno is not None
    if made.end_lineno > call.lineno:
        raise NotSaid("the kernel stands behind its launch")
    before, behind = lines[call.lineno - 1].encode()[:call.col_offset], lines[call.end_lineno - 1].encode()[call.end_col_offset:]
    if not before.isspace() or behind.partition(b"#")[0].strip():
        raise NotSaid("its launch shares its line with other statements")
    return call


def _imported(block: Sequence[ast.stmt]) -> set[str]:
    """What a block imports, each name as a statement of its own."""
    found = [(x, one) for x in block if isinstance(x, ast.Import | ast.ImportFrom) for one in x.names]
    return {ast.unparse(ast.ImportFrom(x.module, [one], x.level) if isinstance(x, ast.ImportFrom) else ast.Import([one])) for x, one in found}


def _dispatched(text: str, tree: ast.Module, call: ast.Expr, made: ast.FunctionDef, binding: Binding, program: Program, emitted: Emitted,
                one_of_several: bool) -> tuple[str, str]:
    """The statement that launches the new kernel where it may be, and the old one elsewhere; and its condition. Raises KeyError for what nothing says,
    NotSaid for what it cannot say."""
    launch, described, held = call.value, DESCRIBED in emitted.text, {e.function: e for e in emitted.entries}
    entries = [held[function] for function in scratch.in_order(program, emitted)]
    assert isinstance(launch, ast.Call) and isinstance(launch.func, ast.Subscript)
    said = _arguments(launch, made)
    names, where = {**said}, list[str]()
    for param, value in sorted(binding.scalars.items(), key=lambda x: not said[x[0]].isidentifier()):  # of what gives a size a name tells it best
        if isinstance(value, str) and value.isidentifier():
            names.setdefault(value, said[param])
            where += [f"{said[param]} == {names[value]}"] if names[value] != said[param] else []
    grid, in_one_way = grid_of(tree, call, launch.func.slice, binding)
    extents = [(str(size), place) for size, place in itertools.zip_longest(binding.grid, grid, fillvalue="1")]
    where += [f"{place} == {size}" for size, place in extents if size.isdecimal() and place != size]  # a size that was a number in the call that was seen
    for size, place in extents:
        names.setdefault(size, place)
    for size, place in extents:
        factors = size.split(" * ")  # of a product what is left of it
        for x in (x for x in factors if x in binding.sizes and x not in names and factors.count(x) == 1):
            if all(y in names for y in factors if y != x):
                names[x] = f"({place} // ({' * '.join(names[y] for y in factors if y != x)}))"
    where += _by_shapes(binding, said, names, {a.of for e in entries for a in e.arguments if a.kind == "scalar" and _looked_at(a.name, a.of, emitted, program)}
                        | {x for e in entries for d in e.grid for x in names_read(d)} | {x for f in program.facts for x in names_read(f)})
    names |= {a.of: _unused(a.of, binding, said) for e in entries for a in e.arguments if a.kind == "scalar" and a.of in binding.sizes and a.of not in names
              and not _looked_at(a.name, a.of, emitted, program)}
    sizes = {x: n.Var(x, I32) for x in binding.sizes}
    for param, value in binding.scalars.items():
        if not (isinstance(value, str) and value.isidentifier()):
            number = str(value) if not isinstance(value, str) else python_expression(expressions({param: value}, sizes, "scalar")[param], names)
            where += [f"{said[param]} == {number}"] if said[param] != number else []
    for param, setting in binding.metas.items():
        if param in said and said[param] != repr(setting):
            if not (setting is None or isinstance(setting, bool | int)):
                raise KeyError(param)
            where.append(f"{'not ' * (not setting)}{said[param]}" if isinstance(setting, bool) else
                         f"{said[param]} {'is' if setting is None else '=='} {setting!r}")
    if not in_one_way or one_of_several:
        read = expressions({str(k): e for k, e in enumerate(binding.grid)}, sizes, "grid")
        where += [f"{place} == {said_so}" for place, e in itertools.zip_longest(grid, read.values())
                  if place != (said_so := python_expression(e, names, CEILDIV) if e is not None else "1")]
    where += worked_out(tree, made, binding, said, _stored(call, tree))
    where += [f"{said[x]} is None" for x in binding.absent if x in said and said[x] != "None"]
    where += [f"{said[x]} is not None" for x in binding.tensors if said.get(x) in _optional(tree, call)]
    for tensor, bound in binding.tensors.items():
        if bound.strides is not None:
            raise KeyError(tensor)
        names.setdefault(bound.name or tensor, said[tensor])
        where += [f"{said[tensor]}.dtype == torch.{TORCH[bound.dtype]}", *([f"{said[tensor]}.data_ptr() % 16 == 0"] if described else [])]
    where += _apart(binding, said, _made_here(tree, call))
    for module in ("torch", "triton"):
        if not any(isinstance(x, ast.Import) and any(a.name == module and not a.asname for a in x.names) for x in tree.body):
            raise NotSaid(f"it does not import {module} by this name")
    for f in (f for f in program.facts if not POSITIVE.fullmatch(expr_text(f))):
        by = [x.b for x in walk(f) if isinstance(x, n.Binary) and x.op in ("mod", "floordiv", "ceildiv") and not isinstance(x.b, n.Const)]
        where += [f"{python_expression(x, names, CEILDIV)} > 0" for x in by] + [python_expression(f, names, CEILDIV)]
    if any(a.kind == "map" for e in entries for a in e.arguments):
        raise NotSaid("the result needs tensor maps")
    lines = lines_of(text)[call.lineno - 1:call.end_lineno]
    pad = lines[0][:len(lines[0]) - len(lines[0].lstrip())]
    step = "\t" if "\t" in pad else "    "
    statements = [*_memory(tree, program, names)]
    for e in entries:
        given = [*(names[a.of] for a in e.arguments), *(f"{k}={v!r}" for k, v in e.options)]
        statements.append(f"{e.function}[{as_tuple(python_expression(x, names, CEILDIV) for x in e.grid)}]({', '.join(given)})")
    _once_more([*where, *statements[len(program.workspaces):]])
    statements = [*([ALLOCATOR] if described else []), *statements]
    if not where:
        return "".join(f"{pad}{x}\n" for x in statements), ""
    new = f"\n{pad}{step}".join(statements)
    where = [f"({x})" if " or " in x else x for x in dict.fromkeys(where)]
    condition = f"(\n{pad}{step}{f'{chr(10)}{pad}{step}and '.join(where)}\n{pad})"
    if len(short := f"{pad}if {' and '.join(where)}:") <= SHORT:
        condition = short.removeprefix(f"{pad}if ").removesuffix(":")
    old = "".join(f"{step}{line}" if line.strip() else line for line in lines)
    return f"{pad}if {condition}:\n{pad}{step}{new}\n{pad}else:\n{old}", " and ".join(where)


def _memory(tree: ast.Module, program: Program, names: dict[str, str]) -> Iterator[str]:
    """Statements that make the memory that several kernels share, on the device of the first tensor, each under a name that the file does not have, which
    `names` gets."""
    known = {x.id for x in ast.walk(tree) if isinstance(x, ast.Name)} | {x.arg for x in ast.walk(tree) if isinstance(x, ast.arg)}
    tensor = next((names[p.name] for p in program.params if not isinstance(p.of, DType) and p.name in names), "")
    for b in (w.buffer for w in program.workspaces):
        word = b.name.lstrip("%")
        while word in known:
            word += "_"
        known.add(word)
        if not tensor or b.dtype.name not in TORCH:
            raise KeyError(b.name)
        names[b.name] = word
        extents = as_tuple(python_expression(d, names, CEILDIV) for d in b.shape)
        yield f"{word} = torch.empty({extents}, dtype=torch.{TORCH[b.dtype.name]}, device={tensor}.device)"


def _looked_at(name: str, size: str, emitted: Emitted, program: Program) -> bool:
    """Whether a written kernel's parameter, which is a size, matters: to its statements, its grid, or what must hold of it."""
    facts = (said for f in program.facts if not POSITIVE.fullmatch(said := expr_text(f)))
    bodies = (text.partition("):")[2] for text in emitted.text.split("\ndef "))
    spaces = (expr_text(d) for w in program.workspaces for d in w.buffer.shape)
    told = [*((name, text) for text in bodies), *((size, x) for e in emitted.entries for x in (*map(expr_text, e.grid), *spaces, *facts))]
    return any(re.search(rf"\b{word}\b", text) for word, text in told)


def _by_shapes(binding: Binding, said: Mapping[str, str], names: dict[str, str], looked_at: set[str]) -> list[str]:
    """Gives sizes that only shapes say, and that matter, their `names`: the extent of a tensor that the launch is given by a name, of as many axes. What must
    hold of those."""
    where = list[str]()
    for size in (x for x in binding.sizes if x in looked_at and x not in names):
        for tensor, bound in binding.tensors.items():
            if size in map(str, bound.shape) and (word := said.get(tensor, "")).isidentifier():
                dims = [*map(str, bound.shape)]
                names[size] = f"{word}.shape[{dims.index(size)}]"
                known = [(k, names.get(d, d)) for k, d in enumerate(dims) if d != size and (d in names or d.isdecimal())]
                where += [f"{word}.dim() == {len(dims)}", *(x for k, d in known if (x := f"{word}.shape[{k}] == {d}") and d != f"{word}.shape[{k}]")]
                break
    return where


def _unused(size: str, binding: Binding, said: Mapping[str, str]) -> str:
    """What a launch gives for a size that nothing looks at: the length of a tensor that has it, where it has a name."""
    return next((f"{said[name]}.shape[{axis}]" for name, t in binding.tensors.items() if said.get(name, "").isidentifier()
                 for axis, d in enumerate(t.shape) if str(d) == size), "0")


def as_tuple(items: Iterable[str]) -> str:
    """Python's text of a tuple."""
    held = [*items]
    return f"({', '.join(held)}{',' * (len(held) == 1)})"


def _made_here(tree: ast.Module, call: ast.Expr) -> set[str]:
    """Names that the function around a launch gives nothing but memory of their own."""
    around = [f for f in ast.walk(tree) if isinstance(f, ast.FunctionDef) and any(s is call for s in ast.walk(f))]
    given: dict[str, list[ast.expr]] = {}
    for s in (s for f in around for s in ast.walk(f) if isinstance(s, ast.Assign)):
        for name in (x.id for t in s.targets for x in ast.walk(t) if isinstance(x, ast.Name)):
            given.setdefault(name, []).append(s.value)
    makes = {name: [isinstance(v, ast.Call) and isinstance(v.func, ast.Attribute) and v.func.attr in MAKES for v in values] for name, values in given.items()}
    return {name for name, each in makes.items() if all(each)}


def _apart(binding: Binding, said: Mapping[str, str], own: set[str]) -> list[str]:
    """That no tensor that is written is one of the others: the new kernel may read ahead of what it writes. What the host code makes itself is none."""
    written = [x for x, t in binding.tensors.items() if t.role != "in" and x in said and said[x] not in own and x not in binding.absent]
    return [f"{said[x]}.data_ptr() != {said[y]}.data_ptr()" for k, x in enumerate(written) for y, t in binding.tensors.items()
            if y in said and y != x and said[y] not in own and y not in binding.absent and y not in written[:k]]


def _arguments(call: ast.Call, made: ast.FunctionDef) -> dict[str, str]:
    """What a call gives for each parameter of a kernel, as it says it; where it gives nothing, the kernel's own."""
    given = {a.arg: x for a, x in zip(made.args.args[::-1], made.args.defaults[::-1], strict=False)} | _given(call, made)
    if any(isinstance(x, ast.Starred) for x in call.args) or any(k.arg is None for k in call.keywords):
        raise NotSaid("its launch does not give each parameter by itself")
    out = dict[str, str]()
    for name, x in given.items():
        out[name] = said_as(x)
    return out


def _stored(call: ast.stmt, tree: ast.Module) -> set[str]:
    """The names that the function around a launch gives a meaning of its own."""
    f = around_of(tree, call)
    own = {x.id for x in ast.walk(f) if isinstance(x, ast.Name) and isinstance(x.ctx, ast.Store)}
    return own | ({a.arg for a in (*f.args.args, *f.args.kwonlyargs)} if isinstance(f, ast.FunctionDef) else set())


def _optional(tree: ast.Module, call: ast.stmt) -> set[str]:
    """Names that may be None where a launch stands: parameters whose default it is, or whose type says so, and what is given None."""
    f = around_of(tree, call)
    given = {x.id for s in ast.walk(f) if isinstance(s, ast.Assign) and any(isinstance(v, ast.Constant) and v.value is None for v in ast.walk(s.value))
             for t in s.targets for x in ast.walk(t) if isinstance(x, ast.Name)}
    if isinstance(f, ast.Module):
        return given
    args, only = f.args.args, f.args.kwonlyargs
    said = {a.arg for a in (*args, *only) if a.annotation is not None and re.search(r"Optional|None", ast.unparse(a.annotation))}
    defaults = (*zip(args[::-1], f.args.defaults[::-1], strict=False), *zip(only, f.args.kw_defaults, strict=True))
    return given | said | {a.arg for a, d in defaults if isinstance(d, ast.Constant) and d.value is None}


def _once_more(said: Iterable[str]) -> None:
    """Raises NotSaid for what is said of a launch that may not be worked out twice."""
    for x in (x for text in said for x in ast.walk(ast.parse(text))):
        if isinstance(x, ast.NamedExpr | ast.Await | ast.Yield | ast.YieldFrom):
            raise NotSaid(f"'{ast.unparse(x)}' may not be worked out twice")
        if isinstance(x, ast.Call) and not isinstance(x.func, ast.Subscript) and (called := ast.unparse(x.func).rpartition(".")[2]) not in PURE:
            raise NotSaid(f"'{called}(..)' is called in its launch")


def _function(tree: ast.Module, name: str) -> ast.FunctionDef | None:
    return next((x for x in ast.walk(tree) if isinstance(x, ast.FunctionDef) and x.name == name), None)


def _names(made: ast.FunctionDef) -> set[str]:
    """What the statements of a function name."""
    return {x.id for s in made.body for x in ast.walk(s) if isinstance(x, ast.Name)}


def _conversions(made: ast.FunctionDef) -> set[str]:
    """The floating-point dtypes that a function converts to, as it says them."""
    said = {ast.unparse(x.args[-1]) for s in made.body for x in ast.walk(s) if isinstance(x, ast.Call) and isinstance(x.func, ast.Attribute) and x.args
            and x.func.attr in ("to", "cast")}
    return {x for x in said if "float" in x or "dtype" in x}


def _dtypes(made: ast.FunctionDef) -> set[str]:
    """The dtypes that a function names."""
    names = {*TORCH.values(), "float8e4nv", "float8e5", "uint16", "uint32", "uint64", "int1"}
    return {x.attr for s in made.body for x in ast.walk(s) if isinstance(x, ast.Attribute) and x.attr in names}


def _launches(tree: ast.Module, name: str) -> list[ast.Call]:
    """The calls of a file that launch a kernel."""
    return [x for x in ast.walk(tree) if isinstance(x, ast.Call) and isinstance(x.func, ast.Subscript) and isinstance(x.func.value, ast.Name)
            and x.func.value.id == name]


def _given(call: ast.Call, made: ast.FunctionDef) -> dict[str, ast.expr]:
    """What a call gives for each parameter."""
    return {a.arg: x for a, x in zip(made.args.args, call.args, strict=False)} | {k.arg: k.value for k in call.keywords if k.arg}


def _relaunched(edit: SourceEdit, program: Program) -> str | None:
    text, writer = edit.after, backend("triton")
    assert isinstance(writer, EditingBackend)
    tree, launch = ast.parse(text), writer.launch(program)
    calls, made = _launches(tree, edit.kernel), _function(tree, edit.kernel)
    if not any(isinstance(x, ast.Import) and any(a.name == "triton" and not a.asname for a in x.names) for x in tree.body):
        return None  # CEILDIV is not there
    options = {k: v for k, v in edit.new_binding.options.items() if edit.binding.options.get(k) != v}
    if len(calls) != 1 or made is None or any(k not in edit.new_binding.options for k in edit.binding.options):
        return None
    (call,) = calls
    assert isinstance(call.func, ast.Subscript)
    changes: list[tuple[int, int, str]] = []
    if edit.new_binding.grid != edit.binding.grid:
        names = _sizes(text, call, made, edit.binding)
        try:
            grid = [python_expression(e, names, CEILDIV) for e in launch.grid]
        except KeyError:
            return None
        changes.append((*_span(text, call.func.slice), as_tuple(grid)))
    given = {k.arg: k.value for k in call.keywords}
    for name, value in options.items():
        end = _span(text, call)[1] - 1
        changes.append((*_span(text, given[name]), repr(value)) if name in given else (end, end, f", {name}={value!r}"))
    for begin, end, new in sorted(changes, reverse=True):
        text = text[:begin] + new + text[end:]
    return text


def _sizes(text: str, call: ast.Call, made: ast.FunctionDef, binding: Binding) -> Mapping[str, str]:
    """How the call says each size that is a parameter of the kernel."""
    given = _given(call, made)
    out: dict[str, str] = {}
    for name, size in binding.scalars.items():
        if isinstance(size, str) and name in given and not isinstance(given[name], ast.Starred):
            said = ast.get_source_segment(text, given[name]) or ""
            out[size] = said if isinstance(given[name], ast.Name | ast.Attribute | ast.Constant) else f"({said})"
    return out


def _span(text: str, node: ast.expr) -> tuple[int, int]:
    """Where a node begins and ends in the text, in characters."""
    lines = lines_of(text)

    def at(line: int, column: int) -> int:
        return sum(map(len, lines[:line - 1])) + len(lines[line - 1].encode()[:column].decode())
    assert node.end_lineno is not None and node.end_col_offset is not None
    return at(node.lineno, node.col_offset), at(node.end_lineno, node.end_col_offset)


def python_expression(e: n.Expr, names: Mapping[str, str], ceildiv: str = "") -> str:
    """The expression, with these names for its variables, and one for a function that divides and rounds up. Raises KeyError for what is no arithmetic of
    whole numbers."""
    match e:
        case n.Const():
            return repr(e.value)
        case n.Var():
            return names[e.name]
        case n.Cast():
            return python_expression(e.x, names, ceildiv)
        case n.Binary(op="ceildiv") if ceildiv:
            return f"{ceildiv}({python_expression(e.a, names, ceildiv)}, {python_expression(e.b, names, ceildiv)})"
        case n.Binary(op="ceildiv"):
            return f"-(-({python_expression(e.a, names)}) // {python_expression(e.b, names)})"
        case n.Binary(op="min" | "max"):
            return f"{e.op}({python_expression(e.a, names, ceildiv)}, {python_expression(e.b, names, ceildiv)})"
        case n.Binary() if e.op in OPERATORS:
            sides = [python_expression(x, names, ceildiv) for x in (e.a, e.b)]
            for k, x in enumerate((e.a, e.b)):
                if isinstance(x, n.Binary) and x.op in OPERATORS and not (k == 0 and x.op == e.op == "and"):
                    sides[k] = f"({sides[k]})"
            return f" {OPERATORS[e.op]} ".join(sides)
        case _:
            raise KeyError(expr_text(e))


__all__ = ["ALLOCATOR", "BESIDE", "DESCRIBED", "POSITIVE", "as_tuple", "beside", "followed", "granted", "narrower", "python_expression"]
