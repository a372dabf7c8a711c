"""Host code in the user's own file that launches an edited Triton kernel: grid and options follow the edit, and what is written reads back as the result."""
from __future__ import annotations

import ast
import re
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from kir.analysis import normalize
from kir.base.diagnostic import KirError
from kir.ir import nodes as n
from kir.ir.binding import Binding, expressions
from kir.ir.canonical import alpha_equal
from kir.ir.nodes import Program
from kir.ir.printer import expr_text
from kir.ir.types import I32
from kir.surface import EditingBackend, Emitted, backend
from kir.surface.edits import SourceEdit
from kir.surface.edits.splice import between
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
    literal, sizes = _literals(edit, before), Counter(map(str, edit.binding.scalars.values()))
    tied = [f"{name} = {value}" for name, value in edit.binding.scalars.items()
            if name not in literal and name != value and not (isinstance(value, str) and value.isidentifier() and sizes[value] == 1)]
    args = {a.arg for a in (*before.args.args, *before.args.kwonlyargs)}
    return [*(f"{name} = {value}" for name, value in edit.binding.metas.items() if name in args and name not in literal), *tied,
            *(fact for fact in edit.binding.facts if not POSITIVE.fullmatch(fact)), *(x for x in narrower(edit) if x.startswith("tensors"))]


def _literals(edit: SourceEdit, made: ast.FunctionDef) -> set[str]:
    """The parameters for which every call in a file gives one literal."""
    calls = [_given(call, made) for call in _launches(ast.parse(edit.before), edit.kernel)]
    return {name for given in calls for name in given if all(isinstance(other.get(name), ast.Constant) for other in calls)
            and len({ast.dump(other[name]) for other in calls}) == 1}


TORCH = {"f16": "float16", "bf16": "bfloat16", "f32": "float32", "f64": "float64", "i8": "int8", "i16": "int16", "i32": "int32", "i64": "int64", "u8": "uint8",
         "bool": "bool", "f8e4m3": "float8_e4m3fn", "f8e5m2": "float8_e5m2"}
"""What torch calls dtypes."""
MAKES = frozenset({"empty", "empty_like", "zeros", "zeros_like", "ones", "ones_like", "full", "full_like", "new_empty", "new_zeros", "new_ones", "new_full"})
"""Functions of torch that give a tensor of its own memory."""
DESCRIBED = "make_tensor_descriptor"
"""What needs memory at a launch, and tensors aligned to 16 bytes."""
ALLOCATOR = 'triton.set_allocator(lambda size, alignment, stream: torch.empty(size, dtype=torch.int8, device="cuda"))'
"""How host code says where that memory comes from."""
BESIDE = "beside"
"""How far an edit reached that leaves the kernel as it was."""


def beside(path: Path, kernel: str, binding: Binding, program: Program) -> SourceEdit | None:
    """The edit of a file that puts a program's kernel beside the one that it was made of, and has the one call in the file that launches that launch the new
    one where all holds that the binding takes for granted: values, strides, dtypes, facts. None where there is no such call, where Python's side does not
    say it all, or where the new kernel is not read in the file as it is by itself."""
    text = path.read_text(encoding="utf-8")
    tree, name = ast.parse(text), f"{kernel}_faster"
    made, calls = _function(tree, kernel), _launches(tree, kernel)
    call = next((s for s in ast.walk(tree) if isinstance(s, ast.Expr) and calls[:1] == [s.value]), None)
    if made is None or call is None or len(calls) != 1 or len(made.decorator_list) != 1 or made not in tree.body or name in text:
        return None
    if len(program.kernels) != 1 or program.plan or program.workspaces or program.tensor_maps or binding.maps or binding.arrays or binding.heuristics:
        return None
    renamed = replace(program, name=name, kernels=(replace(program.kernels[0], name=name),))
    try:
        emitted = backend("triton").emit(renamed)
        written, told = _dispatched(text, tree, call, made, binding, renamed, emitted)
    except (KeyError, KirError):
        return None
    kernels = ast.parse(emitted.text)
    imports, rest = ([x for x in kernels.body if isinstance(x, ast.Import | ast.ImportFrom) is here] for here in (True, False))
    if _imported(imports) - _imported(tree.body) or "multiple_of" in emitted.text or len(rest) != 1:
        return None
    lines = text.splitlines(keepends=True)
    assert call.end_lineno is not None and made.end_lineno is not None
    alone = lines[call.lineno - 1][:call.col_offset].isspace() and lines[call.end_lineno - 1].encode()[call.end_col_offset:].partition(b"#")[0].strip() == b""
    if made.end_lineno > call.lineno or not alone:
        return None
    new = "".join(emitted.text.splitlines(keepends=True)[min(d.lineno for d in rest[0].decorator_list) - 1:])  # type: ignore[attr-defined]  # a function
    after = "".join([*lines[:made.end_lineno], "\n\n", new.rstrip("\n") + "\n", *lines[made.end_lineno:call.lineno - 1], written, *lines[call.end_lineno:]])
    with tempfile.TemporaryDirectory(prefix="kir-edit-") as folder:
        read = list[Program]()
        for place, held in (("edited", after), ("alone", emitted.text)):
            (there := Path(folder) / f"{place}.py").write_text(held, encoding="utf-8")
            try:
                read.append(load_expert(f"{there}::{name}", Binding.parse(dict(emitted.bindings)[name])).program)
            except (KirError, KeyError):
                return None
    if not alpha_equal(*map(normalize, read)):
        return None
    said = f"the kernel stays, and the launch in this file takes '{name}' where {told}" if told else f"the launch in this file takes '{name}'"
    return SourceEdit(str(path), kernel, text, after, tuple(between(text, after)), BESIDE, (said,), binding, binding)


def _imported(block: Sequence[ast.stmt]) -> set[str]:
    """What a block imports, each name as a statement of its own."""
    found = [(x, one) for x in block if isinstance(x, ast.Import | ast.ImportFrom) for one in x.names]
    return {ast.unparse(ast.ImportFrom(x.module, [one], x.level) if isinstance(x, ast.ImportFrom) else ast.Import([one])) for x, one in found}


def _dispatched(text: str, tree: ast.Module, call: ast.Expr, made: ast.FunctionDef, binding: Binding, program: Program, emitted: Emitted) -> tuple[str, str]:
    """The statement that launches the new kernel where it may be, and the old one elsewhere; and its condition. Raises KeyError for what it cannot say."""
    launch, entry, described = call.value, emitted.entries[0], DESCRIBED in emitted.text
    assert isinstance(launch, ast.Call) and isinstance(launch.func, ast.Subscript)
    said = _arguments(text, launch, made)
    names, where = {**said}, list[str]()
    for param, value in sorted(binding.scalars.items(), key=lambda x: not said[x[0]].isidentifier()):  # of what gives a size a name tells it best
        if isinstance(value, str) and value.isidentifier():
            names.setdefault(value, said[param])
            where += [f"{said[param]} == {names[value]}"] if names[value] != said[param] else []
    for size, place in zip(binding.grid, _grid(text, tree, launch.func.slice), strict=False):
        names.setdefault(str(size), place)
    for size, place in zip(binding.grid, _grid(text, tree, launch.func.slice), strict=False):
        factors = str(size).split(" * ")  # of a product what is left of it
        for x in (x for x in factors if x in binding.sizes and x not in names and factors.count(x) == 1):
            if all(y in names for y in factors if y != x):
                names[x] = f"(({place}) // ({' * '.join(names[y] for y in factors if y != x)}))"
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
    where += [f"{said[x]} is None" for x in binding.absent if x in said and said[x] != "None"]
    for tensor, bound in binding.tensors.items():
        if bound.strides is not None:
            raise KeyError(tensor)
        names.setdefault(bound.name or tensor, said[tensor])
        where += [f"{said[tensor]}.dtype == torch.{TORCH[bound.dtype]}", *([f"{said[tensor]}.data_ptr() % 16 == 0"] if described else [])]
    where += _apart(binding, said, _made_here(tree, call))
    if any(isinstance(x, ast.Import) and any(a.name == "torch" and not a.asname for a in x.names) for x in tree.body) is False:
        raise KeyError("torch")
    where += [python_expression(f, names, CEILDIV) for f in program.facts if not POSITIVE.fullmatch(expr_text(f))]
    if any(a.kind == "map" for a in entry.arguments):
        raise KeyError("a tensor map")
    given = [*(names[a.of] for a in entry.arguments), *(f"{k}={v!r}" for k, v in entry.options)]
    pad, lines = " " * call.col_offset, text.splitlines(keepends=True)[call.lineno - 1:call.end_lineno]
    new = f"{entry.function}[({', '.join(python_expression(e, names, CEILDIV) for e in entry.grid)},)]({', '.join(given)})"
    new = f"{ALLOCATOR}\n{pad}    {new}" if described else new
    if not where:
        return f"{pad}{new}\n", ""
    where = [f"({x})" if " or " in x else x for x in dict.fromkeys(where)]
    held = f"\n{pad}    and ".join(where)
    old = "".join(f"    {line}" if line.strip() else line for line in lines)
    return f"{pad}if (\n{pad}    {held}\n{pad}):\n{pad}    {new}\n{pad}else:\n{old}", " and ".join(where)


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


def _arguments(text: str, call: ast.Call, made: ast.FunctionDef) -> dict[str, str]:
    """What a call gives for each parameter of a kernel, as it says it; where it gives nothing, the kernel's own."""
    given = {a.arg: x for a, x in zip(made.args.args[::-1], made.args.defaults[::-1], strict=False)} | _given(call, made)
    if any(isinstance(x, ast.Starred) for x in call.args) or any(k.arg is None for k in call.keywords):
        raise KeyError("*")
    out = dict[str, str]()
    for name, x in given.items():
        said = ast.unparse(x)
        out[name] = said if isinstance(x, ast.Name | ast.Attribute | ast.Constant | ast.Call | ast.Subscript) else f"({said})"
    return out


def _grid(text: str, tree: ast.Module, said: ast.expr) -> list[str]:
    """How host code says the extents of a grid: a tuple, or a name that is given one. Raises KeyError for another."""
    if isinstance(said, ast.Name):
        given = [s.value for s in ast.walk(tree) if isinstance(s, ast.Assign) and [ast.unparse(x) for x in s.targets] == [said.id]]
        if not given or not all(isinstance(x, ast.Tuple) for x in given):
            raise KeyError(said.id)
        return [f"{said.id}[{k}]" for k in range(min(len(x.elts) for x in given if isinstance(x, ast.Tuple)))]
    if not isinstance(said, ast.Tuple):
        raise KeyError(ast.unparse(said))
    return [ast.unparse(x) for x in said.elts]


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
        changes.append((*_span(text, call.func.slice), f"({', '.join(grid)},)"))
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
    lines = text.splitlines(keepends=True)

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


__all__ = ["ALLOCATOR", "BESIDE", "DESCRIBED", "POSITIVE", "beside", "followed", "granted", "narrower", "python_expression"]
