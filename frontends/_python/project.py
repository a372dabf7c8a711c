"""Python files as the frontend reads them: parsed once, never executed.

A `Module` holds the syntax tree of a file, the functions it defines at any depth, and for each top-level name its candidate
definitions in order (an `if` or `try` whose outcome is unknown leaves several). A `Project` finds modules by dotted name on the import
path without importing anything.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field, fields
from functools import cache, cached_property
from importlib.machinery import PathFinder
from pathlib import Path

import libcst as cst

from kir.base.dataclass import dataclass
from kir.base.diagnostic import Origin, error

from .positions import Positions

LAYOUT = frozenset(
    {
        "comma", "lpar", "rpar", "lbracket", "rbracket", "lbrace", "rbrace", "semicolon", "colon", "equal", "dot", "indent", "header",
        "footer", "leading_lines", "lines_after_decorators", "lines_after_module_decorators", "trailing_whitespace", "first_colon",
        "second_colon", "star_expansion", "asynchronous", "operator",
    }
)  # fmt: skip
"""Fields of syntax nodes that hold layout or an operator, and no expression."""


@cache
def _inner_fields(cls: type) -> tuple[str, ...]:
    return tuple(f.name for f in fields(cls) if f.name not in LAYOUT and "whitespace" not in f.name)


def parts(node: cst.CSTNode) -> Iterator[cst.CSTNode]:
    """The nodes directly below, without layout; much faster than `node.children`, which visits."""
    for name in _inner_fields(type(node)):
        value = getattr(node, name)
        if value is None or value.__class__ is str or value.__class__ is bool:
            continue
        if value.__class__ is tuple or value.__class__ is list:
            for x in value:
                if hasattr(x, "deep_equals"):
                    yield x
        elif hasattr(value, "deep_equals"):
            yield value


def _below(node: cst.CSTNode) -> Iterator[cst.CSTNode]:
    for x in parts(node):
        yield x
        yield from _below(x)


CHANGING = frozenset({"append", "extend", "insert", "pop", "remove", "clear", "reverse", "sort", "update", "setdefault", "popitem", "add", "discard"})
"""Methods that change the list, dict or set that they are called on."""
JIT_DECORATORS = frozenset({"jit"})
TRANSPARENT_DECORATORS = frozenset({"jit", "autotune", "heuristics", "libentry", "libtuner", "lru_cache", "cache", "fla_cache_autotune", "staticmethod"})
"""Decorators that leave the meaning of a kernel as it is written: they choose its parameters or its launch."""


@dataclass(frozen=True)
class Imported:
    """`import module` (attribute None) or `from module import attribute`."""

    module: str
    attribute: str | None


@dataclass(frozen=True)
class Guarded:
    """A definition that stands in the branch of a top-level `if`: it counts when `test` is `expected`."""

    test: cst.BaseExpression
    expected: bool
    definition: Definition


Definition = cst.FunctionDef | cst.ClassDef | cst.BaseExpression | Imported | Guarded


@dataclass(eq=False)
class Module:
    """A parsed file. `name` is its dotted name ("" when it is no part of a package on the path)."""

    path: Path
    name: str
    text: str
    tree: cst.Module
    definitions: dict[str, list[Definition]] = field(default_factory=dict)
    functions: list[cst.FunctionDef] = field(default_factory=list)
    owners: dict[int, tuple[cst.FunctionDef, ...]] = field(default_factory=dict)
    version: tuple[int, int] | None = None
    """When the file was written and its size; None for a text that stands in for a file."""

    @cached_property
    def positions(self) -> Positions:
        """Where its nodes stand."""
        return Positions(self.text, self.tree)

    @cached_property
    def changed(self) -> frozenset[str]:
        """The names whose lists or dicts the module's own statements change after they are bound."""
        out: set[str] = set()
        for s in self.tree.body:
            if isinstance(s, (cst.FunctionDef, cst.ClassDef)):
                continue
            for x in _below(s):
                match x:
                    case cst.AssignTarget(target=cst.Subscript(value=cst.Name(value=name))) | cst.AugAssign(target=cst.Subscript(value=cst.Name(value=name))):
                        out.add(name)
                    case cst.Call(func=cst.Attribute(value=cst.Name(value=name), attr=cst.Name(value=word))) if word in CHANGING:
                        out.add(name)
                    case _:
                        pass
        return frozenset(out)

    def origin(self, node: cst.CSTNode) -> Origin | None:
        """Where a node stands in the file."""
        found = self.positions.of(node)
        if found is None:
            return None
        line, column, end_line, end_column = found
        return Origin(str(self.path), line, column + 1, end_line, end_column + 1)

    def line(self, function: cst.FunctionDef) -> int:
        """The 1-based line of one of its functions."""
        owners = self.owners.get(id(function), ())
        return self.positions.line(function, owners[0] if owners else function)

    def code(self, node: cst.CSTNode) -> str:
        """The source text of a node."""
        return self.tree.code_for_node(node)


def decorator_name(d: cst.Decorator) -> str:
    """The last word of a decorator: `jit` of `@triton.jit(do_not_specialize=[..])`."""
    e = d.decorator
    while isinstance(e, cst.Call):
        e = e.func
    if isinstance(e, cst.Attribute):
        return e.attr.value
    return e.value if isinstance(e, cst.Name) else ""


def is_jit(f: cst.FunctionDef, module: Module) -> bool:
    """Whether a function is compiled by Triton, whatever other decorators it has; `jit` of other packages is not meant. `f = triton.jit(f)` below it is a
    decorator too."""
    below = [x.definition if isinstance(x, Guarded) else x for x in module.definitions.get(f.name.value, ())]
    later = [cst.Decorator(e) for e in below if isinstance(e, cst.Call) and e.args and isinstance(a := e.args[0].value, cst.Name) and a.value == f.name.value]
    return any(decorator_name(d) in JIT_DECORATORS and _is_tritons(d, module) for d in (*f.decorators, *later))


def _is_tritons(d: cst.Decorator, module: Module) -> bool:
    e = d.decorator
    while isinstance(e, cst.Call):
        e = e.func
    dotted = dotted_name(e)
    root, _, rest = dotted.partition(".")
    found = [x.definition if isinstance(x, Guarded) else x for x in module.definitions.get(root, ())]
    imported = [x for x in found if isinstance(x, Imported)]
    if not imported:
        return root == "triton" or bool(found)
    own = module.name.split(".")[0]
    for x in imported:
        full = ".".join(p for p in (x.module, x.attribute or "", rest) if p)
        top = full.split(".")[0]
        if (top == "triton" and "gluon" not in full) or (top == own and own) or not x.module:
            return True
    return False


def source_text(path: Path) -> str:
    """The characters of a file, line ends as they are. Raises KirError KIR-F001."""
    try:
        return path.read_bytes().decode("utf-8")
    except OSError as bad:
        raise error("KIR-F001", f"{path} cannot be read: {(bad.strerror or bad.__class__.__name__).lower()}", needs="a Python file in UTF-8") from bad
    except UnicodeDecodeError as bad:
        raise error("KIR-F001", f"{path} is no text in UTF-8: its byte {bad.start} is not", needs="a Python file in UTF-8") from bad


_UNREAD = re.compile(r"\0|[\d_]{4000,}|0[xX][\da-fA-F_]{3000,}")
"""What the parser of files takes and Python's own does not."""


_BRACKETS = re.compile(r"[][(){}]")
MOST_NESTED = 250
"""Levels of nesting from which a text is refused: parsers and what walks their trees recurse, and one of them ends the process."""
_IN_A_ROW = re.compile(rf"""(?:[rRbBfFuU]{{0,2}}(?:"[^"\n]*"|'[^'\n]*')[\s\\]*){{{2 * MOST_NESTED},}}""")
"""Strings beside one another, each of which is a level of the tree of libcst, and none of Python's own."""


def _refuse_deep(text: str) -> None:
    """Raises SyntaxError for a text nested too deeply; its tree is made only where the text looks as if it could be."""
    depth = most = 0
    for found in _BRACKETS.finditer(text):  # those in texts and comments are counted too
        depth = depth + 1 if found[0] in "([{" else max(0, depth - 1)
        most = max(most, depth)
    lines = text.replace("\\\n", "").splitlines()  # one that goes on in the next is one
    if most < MOST_NESTED and text.count("elif") < MOST_NESTED and max(map(len, lines), default=0) < MOST_NESTED:
        return
    if row := _IN_A_ROW.search(text):
        raise SyntaxError("it is nested too deeply", (None, text.count("\n", 0, row.start()) + 1, 1, None))
    try:
        level: list[ast.AST] = [ast.parse(text)]
    except (MemoryError, RecursionError):
        raise SyntaxError("it is nested too deeply") from None
    for _ in range(MOST_NESTED):
        level = [child for node in level for child in ast.iter_child_nodes(node)]
        if not level:
            return
        if long := [x for x in level if isinstance(x, ast.BoolOp) and len(x.values) > MOST_NESTED]:  # each `and` is a level of the tree of libcst
            level = [*long]
            break
    found_at = next((x for x in level if hasattr(x, "lineno")), None)
    raise SyntaxError("it is nested too deeply", (None, getattr(found_at, "lineno", 1), 1, None))


def parse_module(path: Path, name: str = "", text: str | None = None) -> Module:
    """Read a file, or `text` in its place. Raises KirError KIR-F001 (no such file) and KIR-F002 (it does not parse)."""
    text = source_text(path) if text is None else text
    if found := _UNREAD.search(text):
        line, column = text.count("\n", 0, found.start()) + 1, found.start() - text.rfind("\n", 0, found.start())
        said = "a byte 0 stands in it" if found[0] == "\0" else "a number of more than 4,000 digits stands in it"
        raise error("KIR-F002", f"this file is no Python: {said}", origin=Origin(str(path), line, column, line, column + 1))
    try:
        _refuse_deep(text)
        tree = cst.parse_module(text)
    except SyntaxError as bad:
        line = bad.lineno or 1
        raise error("KIR-F002", f"this file is no Python: {bad.msg}", origin=Origin(str(path), line, 1, line, 2)) from bad
    except cst.ParserSyntaxError as bad:
        line, column, said = max(bad.raw_line, 1), max(bad.raw_column, 0) + 1, bad.message.splitlines()[0]
        try:
            ast.parse(text)  # Python's own words are better, and name the line where it began
        except SyntaxError as own:
            line, column, said = own.lineno or line, max(own.offset or column, 1), own.msg
        except ValueError:
            pass
        raise error("KIR-F002", f"this file is no Python: {said}", origin=Origin(str(path), line, column, line, column + 1)) from bad
    except (cst.CSTValidationError, cst.CSTLogicError) as bad:  # what it can spell and Python has not, as strings beside bytes, or a name between two strings
        raise error("KIR-F002", f"this file is no Python: {bad}", origin=Origin(str(path), 1, 1, 1, 2)) from bad
    module = Module(path, name, text, tree)
    _scan(module, tree.body, ())
    _functions(module, tree.body, ())
    if "import_module" in text:
        for name, late in late_imports(module).items():
            module.definitions.setdefault(name, []).append(late)
    return module


def _functions(module: Module, body: Sequence[cst.CSTNode], owners: tuple[cst.FunctionDef, ...]) -> None:
    for s in body:
        match s:
            case cst.FunctionDef():
                module.functions.append(s)
                module.owners[id(s)] = owners
                _functions(module, s.body.body, (*owners, s))
            case cst.ClassDef() | cst.With() | cst.For() | cst.While():
                _functions(module, s.body.body, owners)
            case cst.If():
                _functions(module, s.body.body, owners)
                if s.orelse is not None:
                    _functions(module, [s.orelse] if isinstance(s.orelse, cst.If) else s.orelse.body.body, owners)
            case cst.Try():
                _functions(module, s.body.body, owners)
                for h in s.handlers:
                    _functions(module, h.body.body, owners)
            case _:
                pass


def local_definitions(f: cst.FunctionDef) -> dict[str, list[Definition]]:
    """Names that a host function binds in its own body (for kernels made by factories)."""
    holder = Module(Path(), "", "", cst.Module(body=[]))
    _scan(holder, f.body.body, ())
    return holder.definitions


def _scan(module: Module, body: Sequence[cst.CSTNode], guards: tuple[tuple[cst.BaseExpression, bool], ...]) -> None:
    def define(name: str, d: Definition) -> None:
        for test, expected in reversed(guards):
            d = Guarded(test, expected, d)
        module.definitions.setdefault(name, []).append(d)

    for s in body:
        match s:
            case cst.FunctionDef() | cst.ClassDef():
                define(s.name.value, s)
            case cst.If():
                _scan(module, s.body.body, (*guards, (s.test, True)))
                if s.orelse is not None:
                    _scan(module, [s.orelse] if isinstance(s.orelse, cst.If) else s.orelse.body.body, (*guards, (s.test, False)))
            case cst.Try():
                _scan(module, s.body.body, guards)
                for h in s.handlers if not _imports_a_language(s.body) else ():
                    _scan(module, h.body.body, guards)
            case cst.With():
                _scan(module, s.body.body, guards)
            case cst.SimpleStatementLine():
                for small in s.body:
                    for name, d in small_definitions(module, small):
                        define(name, d)
            case _:
                pass


_THERE = frozenset({("triton", None), ("triton.language", None), ("triton", "language"), ("torch", None)})
"""Imports that do not fail where a kernel written in Triton runs."""


def _imports_a_language(body: cst.BaseSuite) -> bool:
    """Whether statements that are tried import Triton or TileLang and nothing but it: it is there where a kernel written in it runs."""
    bound = [d for s in body.body if isinstance(s, cst.SimpleStatementLine) for small in s.body if isinstance(small, (cst.Import, cst.ImportFrom))
             for _, d in small_definitions(Module(Path(), "", "", cst.Module(body=[])), small)]
    return bool(bound) and all(isinstance(d, Imported) and (d.module.split(".")[0] == "tilelang" or (d.module, d.attribute) in _THERE) for d in bound)


def late_imports(module: Module) -> dict[str, Imported]:
    """Names of the module that a function of it declares `global` and binds to `importlib.import_module` of a literal, itself or through
    names of its own: until it is called they hold a stand-in."""
    out: dict[str, Imported] = {}
    for f in module.functions:
        said = {item.name.value for x in _below(f.body) if isinstance(x, cst.Global) for item in x.names}
        if not said:
            continue
        known: dict[str, Imported] = {}
        for x in _below(f.body):
            match x:
                case cst.Assign(targets=[cst.AssignTarget(target=cst.Name(value=name))], value=cst.Call(func=fn, args=[cst.Arg(value=text)])):
                    if dotted_name(fn).rpartition(".")[2] == "import_module" and isinstance(text, cst.SimpleString):
                        known[name] = Imported(str(text.evaluated_value), None)
                case cst.Assign(targets=[cst.AssignTarget(target=cst.Name(value=name))], value=cst.Name(value=other)) if other in known:
                    known[name] = known[other]
                case _:
                    pass
        out.update({name: d for name, d in known.items() if name in said})
    return out


AUGMENTED: Mapping[type, type[cst.BaseBinaryOp]] = {
    cst.AddAssign: cst.Add, cst.SubtractAssign: cst.Subtract, cst.MultiplyAssign: cst.Multiply, cst.DivideAssign: cst.Divide,
    cst.FloorDivideAssign: cst.FloorDivide, cst.ModuloAssign: cst.Modulo, cst.PowerAssign: cst.Power, cst.LeftShiftAssign: cst.LeftShift,
    cst.RightShiftAssign: cst.RightShift, cst.BitAndAssign: cst.BitAnd, cst.BitOrAssign: cst.BitOr, cst.BitXorAssign: cst.BitXor,
}  # fmt: skip
"""The operator of each augmented assignment."""


def small_definitions(module: Module, s: cst.BaseSmallStatement) -> Iterator[tuple[str, Definition]]:
    """The names that a simple statement of a module binds."""
    match s:
        case cst.Assign(targets=[cst.AssignTarget(target=cst.Name(value=name))], value=value):
            yield name, value
        case cst.Assign(targets=[cst.AssignTarget(target=cst.Tuple(elements=targets))], value=cst.Tuple(elements=values)):
            for t, v in zip(targets, values):
                if isinstance(t.target if hasattr(t, "target") else t.value, cst.Name):
                    yield cst.ensure_type(t.value, cst.Name).value, v.value
        case cst.Assign(targets=targets, value=value) if len(targets) > 1:
            for each in targets:
                if isinstance(each.target, cst.Name):
                    yield each.target.value, value
        case cst.Assign(targets=[cst.AssignTarget(target=cst.Tuple(elements=elements))], value=value):
            for k, t in enumerate(elements):
                if isinstance(t.value, cst.Name):
                    yield t.value.value, cst.Subscript(value, [cst.SubscriptElement(cst.Index(cst.Integer(str(k))))])
        case cst.AugAssign(target=cst.Name(value=name), operator=operator, value=value) if type(operator) in AUGMENTED:
            held = module.definitions.get(name, [])
            before = held[-1] if held and isinstance(held[-1], cst.BaseExpression) else cst.Name(name)  # by itself: not worked out
            yield name, cst.BinaryOperation(before, AUGMENTED[type(operator)](), value)
        case cst.AnnAssign(target=cst.Name(value=name), value=value) if value is not None:
            yield name, value
        case cst.Import(names=names):
            for alias in names:
                dotted = dotted_name(alias.name)
                bound = alias.evaluated_alias
                yield (bound, Imported(dotted, None)) if bound else (dotted.split(".")[0], Imported(dotted.split(".")[0], None))
        case cst.ImportFrom(names=names) if not isinstance(names, cst.ImportStar):
            base = relative(module.name, module.path, len(s.relative), dotted_name(s.module) if s.module is not None else "")
            for alias in names:
                yield alias.evaluated_alias or alias.evaluated_name, Imported(base, alias.evaluated_name)
        case cst.ImportFrom():
            base = relative(module.name, module.path, len(s.relative), dotted_name(s.module) if s.module is not None else "")
            yield "*", Imported(base, "*")
        case _:
            pass


def relative(name: str, path: Path, level: int, module: str) -> str:
    """The absolute dotted name of a relative import."""
    if not level:
        return module
    parts = name.split(".") if name else []
    if path.name != "__init__.py":
        parts = parts[:-1]
    parts = parts[: len(parts) - level + 1]
    return ".".join([*parts, *([module] if module else [])])


def dotted_name(e: cst.BaseExpression | None) -> str:
    """`a.b.c` as text; "" for anything else."""
    if isinstance(e, cst.Name):
        return e.value
    if isinstance(e, cst.Attribute):
        base = dotted_name(e.value)
        return f"{base}.{e.attr.value}" if base else ""
    return ""


def _carried_along(module: Module) -> list[str]:
    """The folders in which a module's package carries other packages along, as they are, under their own names."""
    above = len(module.name.split(".")) - 1 - (module.path.name != "__init__.py")
    if not module.name or above >= len(module.path.parents):
        return []
    return [str(place) for word in ("third_party", "thirdparty", "_vendor", "vendor") if (place := module.path.parents[above] / word).is_dir()]


class Project:
    """The modules read so far. One project serves one command; nothing is shared between projects."""

    def __init__(self) -> None:
        self._by_path: dict[Path, Module] = {}
        self._by_name: dict[str, Path | None] = {}
        self._touched: set[Path] = set()
        self._roots: set[str] = set()
        self.headers: dict[Path, tuple[Path, ...]] = {}
        """Headers of C++ below the folders of projects, as they are asked for."""

    def consulted(self) -> tuple[Path, ...]:
        """The files asked for since this was last called."""
        out, self._touched = tuple(sorted(self._touched)), set()
        return out

    def asked_for(self, path: Path) -> None:
        """Note a file that is read otherwise."""
        self._touched.add(path.resolve())

    def file(self, path: Path) -> Module:
        """The module of a file, with its dotted name as the import path has it."""
        path = path.resolve()
        self._touched.add(path)
        held = self._by_path.get(path)
        if held is None or held.version not in (None, _version(path)):
            version = _version(path)
            text = source_text(path)
            name, root = placed(path, text)
            held = parse_module(path, name, text)
            held.version = version
            if "." in held.name or path.name == "__init__.py":
                self._roots.add(str(root))
            self._by_path[path] = held
        return held

    def with_text(self, path: Path, text: str) -> Project:
        """This project with another text in the place of a file's; what other files say is shared."""
        path = path.resolve()
        made = Project()
        made._by_path = {k: v for k, v in self._by_path.items() if k != path}
        made._by_name, made._roots = dict(self._by_name), set(self._roots)
        made._by_path[path] = parse_module(path, placed(path, text)[0], text)
        return made

    def module(self, name: str, asks: Module | None = None) -> Module | None:
        """The module of a dotted name; None when there is no source file for it. A module `asks` for one of its own package: that lies where
        it does itself, whatever else of this name is installed."""
        if asks is not None and asks.name.partition(".")[0] == name.partition(".")[0]:
            above = len(asks.name.split(".")) - (asks.path.name != "__init__.py")
            root = str(asks.path.parents[above]) if above < len(asks.path.parents) else ""
            key = f"{root}:{name}"
            if key not in self._by_name:
                self._by_name[key] = find_source(name, root) if root else None
            if (own := self._by_name[key]) is not None:
                return self.file(own)
        if name not in self._by_name:
            roots = [*sorted(self._roots), *(_carried_along(asks) if asks is not None else ())]
            self._by_name[name] = find_source(name) or next((x for root in roots if (x := find_source(name, root)) is not None), None)
        path = self._by_name[name]
        return None if path is None else self.file(path)

    def beside(self, module: Module, name: str) -> Module | None:
        """A module that a file outside of packages imports as a script does, from its own folder, or from a folder above it up to that of its
        project; None when there is no such file."""
        if (module.path.parent / "__init__.py").is_file():
            return None
        for folder in _project_folders(module.path):
            place = folder.joinpath(*name.split("."))
            for path in (place.with_name(f"{place.name}.py"), place / "__init__.py"):
                if path.is_file() and path.resolve() != module.path:
                    return self.file(path)
        return None


MARKS = (".git", "pyproject.toml", "setup.py", "setup.cfg")
"""What lies in the folder of a project."""


def _project_folders(path: Path) -> list[Path]:
    """The folder of a file, and those above it up to one that is marked as a project's; only its own where none is."""
    out: list[Path] = []
    for folder in path.parents:
        out.append(folder)
        if any((folder / mark).exists() for mark in MARKS):
            return out
    return out[:1]


def _version(path: Path) -> tuple[int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size


def find_source(name: str, root: str | None = None) -> Path | None:
    """The source file of a dotted module name, on the import path or under a folder, found without running any of its packages."""
    path: Sequence[str] | None = None if root is None else [root]
    spec = None
    parts = name.split(".")
    for i in range(len(parts)):
        # By its last name: with the whole one, a folder without __init__.py asks for its parent among the imported modules.
        spec = PathFinder.find_spec(parts[i], path)
        if spec is None:
            return None
        path = list(spec.submodule_search_locations or [])
    if spec is None or spec.origin is None or not spec.origin.endswith(".py"):
        return None
    return Path(spec.origin)


_IMPORTS = re.compile(r"^[ \t]*(?:from[ \t]+(\.*)([\w.]*)[ \t]+import\b|import[ \t]+([\w.]+))", re.MULTILINE)


@cache
def _import_path(folders: tuple[str, ...]) -> frozenset[str]:
    """The folders of the import path, as the file system has them."""
    return frozenset(str(Path(p).resolve()) for p in folders if p)


def placed(path: Path, text: str) -> tuple[str, Path]:
    """The dotted name under which a file is imported, and the folder that the name is counted from. A folder on the import path that directly
    holds the file's package decides; else what the file itself imports by a name that begins with one of the folders above it; else the
    package; else the folder on the import path above it. A relative import needs as many folders as it has dots."""
    top = top_package(path)
    roots = _import_path(tuple(sys.path))
    root = top.parent
    if str(root) not in roots:
        imports = [(len(m[1] or ""), m[2] or m[3] or "") for m in _IMPORTS.finditer(text)]
        own = next((x for level, name in imports if not level and (x := _above(path, name)) is not None), None)
        if own is not None:
            root = own
        elif top == path:
            root = next((x for x in path.parents if str(x) in roots), root)
        deepest = max((level for level, _ in imports), default=0)
        if deepest and len(path.relative_to(root).parts) <= deepest and deepest < len(path.parents):
            root = path.parents[deepest]
    inside = path.relative_to(root)
    return ".".join(inside.parent.parts if path.name == "__init__.py" and inside.parent.parts else inside.with_suffix("").parts), root


def _above(path: Path, name: str) -> Path | None:
    """The folder from which a dotted name leads to a module, where its first part is a folder above a file; the nearest."""
    parts = name.split(".")
    if len(parts) < 2:
        return None
    for folder in path.parents:
        if folder.name == parts[0]:
            place = folder.parent.joinpath(*parts)
            if place.is_dir() or place.with_name(f"{place.name}.py").is_file():
                return folder.parent
    return None


def top_package(path: Path) -> Path:
    """The topmost folder of the package that a file is part of; the file itself where it is in none."""
    top = path
    while (top.parent / "__init__.py").is_file():
        top = top.parent
    return top
