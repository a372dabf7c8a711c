"""A CUDA file whose one launch of a kernel chooses: the new kernel, put beside the old one, where all holds that it takes for granted, else the old one.

The launch and the definition are found in the text, comments and strings blanked out; what is not as plain as that is refused with the reason. What is
written is read again: the new kernel in the file is what it is by itself.
"""
from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NoReturn

from kir.base.diagnostic import error
from kir.ir import nodes as n
from kir.ir.binding import Binding, expressions, fact_expressions
from kir.ir.nodes import Program
from kir.ir.printer import expr_text
from kir.ir.types import DTYPES, I32
from kir.ir.visit import walk
from kir.learning.optimize.hosts import scratch
from kir.learning.optimize.hosts.architecture import guarded, needed
from kir.learning.optimize.hosts.cuda_names import said_in_one_way
from kir.learning.optimize.hosts.cuda_text import Definition, Launch, blanked, conditions, definition_in, launch_in, launches_in, masked_line, overridable
from kir.learning.optimize.hosts.python import BESIDE, POSITIVE
from kir.learning.optimize.hosts.read_back import NotSaid, reads_back, source_of
from kir.surface import Emitted, backend
from kir.surface.edits import SourceEdit
from kir.surface.edits.splice import between, with_ends_of

C_TYPES = {"f16": "__half", "bf16": "__nv_bfloat16", "f32": "float", "f64": "double", "i8": "signed char", "u8": "unsigned char", "i16": "short",
           "u16": "unsigned short", "i32": "int", "u32": "unsigned int", "i64": "long long", "u64": "unsigned long long", "bool": "bool"}
"""What a compile-time type of a kernel may be, as C++ says it."""
OPERATORS = {"add": ("+", 4), "sub": ("-", 4), "mul": ("*", 5), "floordiv": ("/", 5), "tdiv": ("/", 5), "mod": ("%", 5), "trem": ("%", 5), "eq": ("==", 2),
             "ne": ("!=", 2), "lt": ("<", 3), "le": ("<=", 3), "gt": (">", 3), "ge": (">=", 3), "and": ("&&", 1), "or": ("||", 0)}
"""How C++ writes operators of whole numbers that are not negative, and how tightly they bind."""
_INCLUDE = re.compile(r"^[ \t]*#[ \t]*include[ \t]*[<\"][^>\"\n]+[>\"][^\n]*\n", re.MULTILINE)
_SIMPLE = re.compile(r"[A-Za-z_]\w*|\d+")
_HALF = re.compile(r"([A-Za-z_]\w*) // (\d+)")
_CHANGES = re.compile(r"\+\+|--|(?<![=!<>])=(?!=)")
_PURE = frozenset({
    *("data_ptr", "const_data_ptr", "mutable_data_ptr", "data", "get", "raw_pointer_cast", "size", "sizes", "numel", "stride", "dim", "min", "max", "dim3"),
    *("static_cast", "reinterpret_cast", "const_cast", "int", "float", "double", "unsigned", "int64_t", "int32_t", "size_t", "sizeof")})
"""Functions that host code may call once more: they change nothing."""
_NEEDED = {"<cassert>": re.compile(r"\bassert\s*\("), "<cstring>": re.compile(r"\bmem(?:cpy|set|move|cmp)\s*\("), "<cmath>": re.compile(
    r"\b(?:INFINITY|NAN|(?:a?(?:sin|cos|tan)h?|exp(?:2|10|m1)?|log(?:2|10|1p|b)?|r?sqrt|cbrt|pow|fmax|fmin|fabs|fma|fmod|floor|ceil|rint|nearbyint|trunc|erfc?|"
    r"l?l?round|[lt]gamma|copysign|ldexp|scalbn|isnan|isinf|isfinite|signbit|atan2|hypot|remainder)f?\s*\()")}
"""Headers that a written text includes always, and what needs them."""
LABELS = " A comment `@label` names the statement of the program that the lines below it are written for."
"""What such a text says of comments that a patch leaves out."""
UNUSED = 2
"""How often a written text names a parameter that it does not look at, beside each kernel: the function that launches, and what that one passes."""


def beside(path: Path, kernel: str, binding: Binding, program: Program) -> SourceEdit:
    """The edit of a file that puts a program's kernel beside the one that it was made of, in a namespace of its own, and has the one launch in the file
    choose it where all holds that the binding takes for granted: values, facts, threads, alignment, and that nothing is written where something else is read.
    Raises KirError KIR-C102 with the reason where there is no such edit, and what the backend refuses."""
    try:
        held = source_of(path)
        after, said = _edited(path, held.replace("\r\n", "\n"), kernel, binding, program)
    except NotSaid as reason:
        raise error("KIR-C102", f"no launch in {path.name} can choose: {reason}", attempt="-o OUT.cu, a kernel with a function that launches it") from None
    after = with_ends_of(held, after)
    return SourceEdit(str(path), kernel, held, after, tuple(between(held, after)), BESIDE, (said,), binding, binding)


def _edited(path: Path, text: str, kernel: str, binding: Binding, program: Program) -> tuple[str, str]:
    """The text after the edit, and what a reader is told."""
    shown = blanked(text)
    name = f"{kernel}_faster"
    if name in text:
        raise NotSaid(f"it has a '{name}' already")
    if re.search(r'extern\s*"C"\s*\{', text):
        raise NotSaid("it has a block of C linkage, where templates may not stand")
    if binding.maps or binding.arrays:
        raise NotSaid("the result takes more than the tensors that the kernel has")
    made, found, under = definition_in(shown, text, kernel), launches_in(shown, kernel), conditions(shown)
    if not found:
        raise NotSaid(f"no launch of '{kernel}' is in it")
    emitted = backend("cuda").emit(renamed := scratch.renamed(program, name))
    if not emitted.launch:
        raise NotSaid("the result needs host code that only its launcher has")
    if re.search(rf"\busing\s+[\w:]*::\s*{re.escape(kernel)}\s*;", shown):
        raise NotSaid("its name is taken out of a namespace")
    defined, (architecture, condition) = overridable(shown, made), needed(emitted.text)
    after, told, reasons = text, list[str](), list[NotSaid]()
    for m in reversed(found):
        try:
            launch = launch_in(shown, text, m)
            if made.end > launch.start:
                raise NotSaid("the kernel stands behind its launch")
            if under(launch.start)[:len(under(made.start))] != under(made.start):
                raise NotSaid("the kernel stands under conditions of the preprocessor that its launch does not")
            in_one_way = len(found) == 1 and said_in_one_way(shown, launch.start, launch.config[0])
            statement, where = _chosen(launch, made, binding, renamed, emitted, defined, in_one_way, architecture)
        except NotSaid as bad:
            reasons.append(bad)
        else:
            after = after[:launch.start] + statement + after[launch.end:]
            told.insert(0, where)
    if not told:
        raise reasons[-1]
    taking = scratch.in_cuda(renamed, emitted, C_TYPES, cpp_expression)
    includes, body = _parts(replace(emitted, launch=f"{emitted.launch.rstrip()}\n\n{taking}" if taking else emitted.launch))
    body = guarded(body, condition, architecture) if condition else body
    includes += scratch.INCLUDES if taking else ()
    includes += ["<type_traits>"] if "std::is_same<" in after and "std::is_same<" not in text else []
    seen = [m for m in _INCLUDE.finditer(text) if m.end() <= made.start and m.start() == masked_line(shown, m.start())
            and under(m.start()) == under(made.start)[:len(under(m.start()))]]
    lacking = [x for x in includes if not any(x in m[0] for m in seen)]
    at = seen[-1].end() if seen else 0
    space = f"\n\nnamespace {kernel}_kir {{\n\n{body.strip()}\n\n}}  // namespace {kernel}_kir\n"
    after = "".join([text[:at], *(f"#include {x}\n" for x in lacking), text[at:made.end], space, after[made.end:]])
    for entry in emitted.entries:
        reads_back(path, after, entry.function, emitted, architecture)
    said = f"the launch{'es' * (len(told) > 1)} in this file take{'s' * (len(told) == 1)} '{name}' where {'; or '.join(dict.fromkeys(told))}"
    return after, f"the kernel stays, and {said}" + (f"; {len(reasons)} further stay as they are" if reasons else "")


def _parts(emitted: Emitted) -> tuple[list[str], str]:
    """What a written text includes, and its functions, of which none is seen beyond the file."""
    body = re.sub(r"^#include[^\n]*\n|^[ \t]*// @\w+\n", "", emitted.text, flags=re.MULTILINE).replace(LABELS, "")
    includes = [x for x in re.findall(r"^#include\s+([<\"][^>\"\n]+[>\"])", emitted.text, re.MULTILINE)
                if x not in _NEEDED or _NEEDED[x].search(f"{body}{emitted.launch}")]
    own = r"^\s*#\s*(pragma\s+unroll[^\n]*|if __CUDA_ARCH__ >= \d+$|else$|endif$)"
    if re.search(r"^\s*#", re.sub(own, "", body, flags=re.MULTILINE), re.MULTILINE):
        raise NotSaid("the result needs directives of its own")
    launch = re.sub(r"^cudaError_t launch_", "static inline cudaError_t launch_", emitted.launch, flags=re.MULTILINE)
    return includes, re.sub(r'^extern "C" __global__', "static __global__", f"{body.strip()}\n\n{launch.strip()}", flags=re.MULTILINE)


# ---------------------------------------------------------------------------------------------------------------------- choosing
def _chosen(launch: Launch, made: Definition, binding: Binding, program: Program, emitted: Emitted,
            defined: Sequence[str], in_one_way: bool, architecture: str = "") -> tuple[str, str]:
    """The statement that launches the new kernel where it may be, and the old one elsewhere; and its condition. Raises NotSaid for what it cannot say."""
    if len(launch.given) != len(made.params):
        raise NotSaid("its launch does not give each parameter")
    said = {name: x if _SIMPLE.fullmatch(x) else f"({_pure(x)})" for name, x in zip(made.params, launch.given, strict=True)}
    of = {name: max((p for p in made.params if name.startswith(f"{p}_")), key=len, default="")
          for name in (*binding.scalars, *binding.tensors, *(p.name.lstrip("%") for p in program.params)) if name not in said}
    said |= {name: f"{said[p]}.{name.removeprefix(f'{p}_')}" for name, p in of.items() if p}  # a field of a struct that is passed whole
    if len(launch.config) < 2:
        raise NotSaid("its launch has no grid and block")
    names, where = _sizes(launch, binding, said, emitted)
    where += [] if in_one_way else _of_the_grid_read(launch, binding, names)
    where += _of_the_launch(launch, made, binding, said, names)
    where += _facts(program.facts, names)
    where += defined
    told = list(dict.fromkeys(where))
    own = {w.buffer.name for w in program.workspaces}
    given = sorted((a for e in emitted.entries for a in e.arguments if a.kind == "pointer" and a.source not in own), key=lambda a: a.divisor)
    pointers = {a.source: a for a in given}.values()  # of each the most that a kernel asks for
    tensors = {a.source: said[_parameter(binding, a.source)] for a in pointers}
    aligned = [(tensors[a.source], a.divisor) for a in pointers if a.divisor > DTYPES[a.dtype].bytes]
    for bytes_ in dict.fromkeys(by for _, by in aligned):
        places = " | ".join(f"reinterpret_cast<unsigned long long>({x})" for x, by in aligned if by == bytes_)
        where.append(f"({places}) % {bytes_} == 0")
    where += _apart(program, tensors)
    arguments = [_argument(p, names, tensors, said) for p in program.params if p.value is None]
    stream = launch.config[3] if len(launch.config) > 3 else "0"
    space = f"{launch.within}{program.name.removesuffix('_faster')}_kir"
    call = f"{space}::launch_{program.name}({', '.join([*arguments, stream])})"
    if not _signature(emitted, len(arguments) + len(own) + 1):
        raise NotSaid("the function that launches the result takes something else")
    pad, does = launch.pad, f"{call};"
    where += [f"{space}::is_built()"] if architecture else []
    if own or program.tensor_maps:  # there may be no memory, or no such maps
        where, does = [*where, f"{call} == cudaSuccess"], "// launched"
    held = f"\n{pad}    && ".join(dict.fromkeys(f"({x})" if "||" in x else x for x in where)) or "true"
    old = launch.text.replace("\n", "\n  ")
    told += ["tensors are aligned to 16 bytes"] if aligned else []
    told += [f"the file is compiled for {architecture}"] if architecture else []
    told += ["there is memory for what its kernels share"] if own else []
    statement = f"if ({held}) {{\n{pad}  {does}\n{pad}}} else {{\n{pad}  {old}\n{pad}}}"
    return statement, " and ".join([*told, "none is written where another one begins"])


def _pure(words: str) -> str:
    """What a launch is given, where it may be worked out more than once."""
    called = [*re.findall(r"([A-Za-z_]\w*)\s*(?:<[^<>]*>)?\s*\(", words)]
    if _CHANGES.search(words) or (strange := next((x for x in called if x not in _PURE), "")):
        raise NotSaid(f"'{words}' may not be worked out twice" if _CHANGES.search(words) else f"'{strange}(..)' is called in its launch")
    return words


def _signature(emitted: Emitted, count: int) -> bool:
    """Whether the written function that launches takes so many arguments."""
    m = re.search(r"cudaError_t launch_\w+\(([^)]*)\)", emitted.launch)
    return m is not None and len(m[1].split(",")) == count


def _sizes(launch: Launch, binding: Binding, said: Mapping[str, str], emitted: Emitted) -> tuple[dict[str, str], list[str]]:
    """How the host code says each size, and what must hold of what it says them by. One that the new text takes and does not look at is 0."""
    looked_at = Counter(re.findall(r"\w+", re.sub(r"//[^\n]*", "", emitted.text + emitted.launch)))
    names, where = dict[str, str](), list[str]()
    plain = {param: value for param, value in binding.scalars.items() if isinstance(value, str) and value.isidentifier()}
    for param, size in sorted(plain.items(), key=lambda x: not said[x[0]].isidentifier()):
        names.setdefault(size, said[param])
        where += [f"{said[param]} == {names[size]}"] if names[size] != said[param] else []
    derived = {m[1]: (param, f"({said[param]} * {m[2]})") for param, value in binding.scalars.items() if (m := _HALF.fullmatch(str(value))) is not None}
    names |= {size: whole for size, (_, whole) in derived.items() if size not in names}  # the kernel sees the quotient alone
    plain |= {param: size for size, (param, whole) in derived.items() if names[size] == whole}
    words_of_the_grid = {*re.findall(r"[A-Za-z_]\w*", " ".join(map(str, binding.grid)))}
    unused = UNUSED + len(emitted.entries)
    names |= {size: size for size in binding.sizes if size not in names and size in said.values()}  # what the kernel is given and does not look at
    for size in (x for x in binding.sizes if x not in names):
        names[size] = _of_the_grid(size, launch, binding, names) if looked_at[size] > unused or size in words_of_the_grid else "0"
    sizes = {x: n.Var(x, I32) for x in binding.sizes}
    for param, value in binding.scalars.items():
        if param not in plain:
            number = str(value) if not isinstance(value, str) else cpp_expression(expressions({param: value}, sizes, "scalar")[param], names)
            where += [f"{said[param]} == {number}"] if said[param] != number else []
    return names, where


def _of_the_grid(size: str, launch: Launch, binding: Binding, names: Mapping[str, str]) -> str:
    """A size that the grid alone says: an extent of it, or what is left of one that is a product of it and of sizes that are known."""
    for axis, extent in zip("xyz", binding.grid, strict=False):
        factors = str(extent).split(" * ")
        if size in factors and all(x == size or x in names for x in factors) and factors.count(size) == 1:
            others = [names[x] for x in factors if x != size]
            return f"static_cast<int>({_extents(launch.config[0])}.{axis}{''.join(f' / {x}' for x in others)})"
    raise NotSaid(f"nothing that its launch says is '{size}'")


def _said_of(name: str, launch: Launch, made: Definition) -> str:
    """What a launch says of a parameter of the kernel's template. Raises NotSaid."""
    place = made.templates.index(name) if name in made.templates else len(launch.templates)
    said = launch.templates[place] if place < len(launch.templates) else made.usual[place] if name in made.templates else ""
    if not said:
        raise NotSaid(f"its launch does not say '{name}'")
    return said


def _of_the_grid_read(launch: Launch, binding: Binding, names: Mapping[str, str]) -> Iterator[str]:
    """That the grid is the one that the kernel was read under: host code may come to the launch in several ways."""
    sizes = {x: n.Var(x, I32) for x in binding.sizes}
    read = expressions({str(k): e for k, e in enumerate(binding.grid)}, sizes, "grid")
    flat = re.search(r"[-+*/\d]", launch.config[0]) and not re.search(r"dim3|[?]", launch.config[0])  # a number
    for axis, e in itertools.zip_longest("xyz", read.values()):
        number, grid = cpp_expression(e, names, 3) if e is not None else "1", f"static_cast<int>({_extents(launch.config[0])}.{axis})"
        if number not in (grid, launch.config[0]) and not (e is None and flat):
            yield f"{grid} == {number}"


def _extents(words: str) -> str:
    """What a launch says of grid or block, as three numbers."""
    return words if _pure(words).startswith("dim3(") else f"dim3({words})"


def _extent(launch: Launch, axis: str) -> str:
    """What a launch says of a block along an axis: a number, where that is all of it."""
    block = launch.config[1]
    if numbers := re.fullmatch(r"(?:dim3\s*\()?\s*(\d+)\s*(?:,\s*(\d+)\s*)?(?:,\s*(\d+)\s*)?\)?", block):
        return numbers["xyz".index(axis) + 1] or "1"
    if re.fullmatch(r"\w+", block):
        declared = re.findall(rf"\b(\w+)\s+{block}\b(?=\s*[=({{;,)])", launch.around)
        if declared and all(x == "dim3" for x in declared):
            return f"{block}.{axis}"
        if declared and all(x in ("int", "unsigned", "size_t", "int64_t", "uint32_t") for x in declared):
            return block if axis == "x" else "1"
    return f"{_extents(block)}.{axis}"


def _of_the_launch(launch: Launch, made: Definition, binding: Binding, said: Mapping[str, str], names: Mapping[str, str]) -> Iterator[str]:
    """What the binding takes for granted of a launch beside its sizes: threads, compile-time values, facts, and what is not passed."""
    for axis in "xyz":
        threads = binding.metas.get(f"threads_{axis}")
        if isinstance(threads, int) and not isinstance(threads, bool):
            extent = _extent(launch, axis)
            yield from () if extent == str(threads) else (f"{extent} == {threads}",)
    for name, value in binding.metas.items():
        if name == "shared_bytes":
            given = launch.config[2] if len(launch.config) > 2 else "0"
            yield from (f"static_cast<int>({_pure(given)}) == {value}",) if given != str(value) else ()
        elif not name.startswith("threads_"):
            if name not in made.templates:
                raise NotSaid(f"'{name}' is nothing that its launch says")
            yield from _template(_said_of(name, launch, made), value)
    for name, dtype in binding.dtypes.items():
        yield from _template(_said_of(name, launch, made), str(dtype))
    yield from (f"{said[x]} == nullptr" for x in binding.absent if x in said and said[x] not in ("nullptr", "NULL"))
    yield from _facts(fact_expressions(binding.facts, {x: n.Var(x, I32) for x in binding.sizes}), names)


def _facts(facts: Sequence[n.Expr], names: Mapping[str, str]) -> Iterator[str]:
    """Facts as C++ says them, each behind what it divides by not being 0."""
    for f in facts:
        if not POSITIVE.fullmatch(expr_text(f)):
            by = [x.b for x in walk(f) if isinstance(x, n.Binary) and x.op in ("mod", "trem", "floordiv", "tdiv", "ceildiv") and not isinstance(x.b, n.Const)]
            yield from (f"{cpp_expression(x, names, 4)} > 0" for x in by)
            yield cpp_expression(f, names)


def _template(given: str, value: object) -> Iterator[str]:
    """That a template argument is a value or a type, where its text does not say so."""
    if isinstance(value, bool):
        yield from () if given == str(value).lower() else (f"({given}) == {str(value).lower()}",)
    elif isinstance(value, int):
        yield from () if given == str(value) else (f"({given}) == {value}",)
    elif isinstance(value, str) and value in C_TYPES:
        yield from () if given == C_TYPES[value] else (f"std::is_same<{given}, {C_TYPES[value]}>::value",)
    else:
        raise NotSaid(f"'{value}' is no compile-time value that C++ compares")


def _apart(program: Program, tensors: Mapping[str, str]) -> Iterator[str]:
    """That no tensor that is written begins where another one does: the new kernel may read ahead of what it writes."""
    roles = {p.name: p.role for p in program.params if isinstance(p.of, n.Buffer) and p.name in tensors}
    written = [x for x, role in roles.items() if role != "in"]
    for k, x in enumerate(written):
        others = [y for y in roles if y != x and y not in written[:k]]
        yield from (f"static_cast<const void*>({tensors[x]}) != static_cast<const void*>({tensors[y]})" for y in others)


def _parameter(binding: Binding, tensor: str) -> str:
    """The kernel's parameter that a tensor of the program is."""
    return next((param for param, t in binding.tensors.items() if (t.name or param) == tensor.lstrip("%")), tensor.lstrip("%"))


def _argument(p: n.Param, names: Mapping[str, str], tensors: Mapping[str, str], said: Mapping[str, str]) -> str:
    """What a function that launches the program is given for a parameter."""
    if isinstance(p.of, n.Buffer):
        kind = C_TYPES.get(p.of.dtype.name)
        if kind is None or p.name not in tensors:
            raise NotSaid(f"nothing says what '{p.name}' is")
        return f"({kind}*){tensors[p.name]}"
    if (found := names.get(p.name) or said.get(p.name.lstrip("%"))) is None:
        raise NotSaid(f"nothing that its launch says is '{p.name}'")
    return found


def cpp_expression(e: n.Expr, names: Mapping[str, str], above: int = 0) -> str:
    """An expression of whole numbers that are not negative, with these names for its variables. Raises NotSaid for another."""
    def side(x: n.Expr, at: int) -> str:
        return cpp_expression(x, names, at)
    match e:
        case n.Const(value=bool() as value):
            return str(value).lower()
        case n.Const():
            return repr(e.value)
        case n.Var() if e.name in names:
            return names[e.name]
        case n.Cast():
            return cpp_expression(e.x, names, above)
        case n.Binary(op="ceildiv"):
            text = f"({side(e.a, 4)} + {side(e.b, 4)} - 1) / {side(e.b, 6)}"
            return f"({text})" if above > 5 else text
        case n.Binary(op="min" | "max"):
            a, b = side(e.a, 3), side(e.b, 3)
            return f"({a} {'<' if e.op == 'min' else '>'} {b} ? {a} : {b})"
        case n.Binary() if e.op in OPERATORS:
            said, tight = OPERATORS[e.op]
            text = f"{side(e.a, tight)} {said} {side(e.b, tight + 1)}"
            return f"({text})" if tight < above else text
        case _:
            _no(e)


def _no(e: n.Expr) -> NoReturn:
    raise NotSaid(f"C++ is not told {expr_text(e)}")


__all__ = ["beside", "cpp_expression"]
