"""The shape of the repository: linked folders, one-way arrows, rooms and their order, length of files, names."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise
from pathlib import Path

import pytest

from benchmarks.checks.repeats import repeated
from kir.base.diagnostic import explanations

ROOT = Path(__file__).parents[1]
LINKED = ("passes", "frontends", "backends", "skills", "grammars")
CODE = ("passes", "frontends", "backends")

OPTIONAL = frozenset({
    *("torch", "triton", "tilelang", "tvm", "pycuda", "flashinfer", "flash_qla", "fla", "openai", "anthropic", "genai_prices", "z3", "ml_dtypes",
      "mcp", "starlette", "uvicorn", "pyarrow", "lightgbm", "llvmlite"),
    *("numpy", "rich", "jinja2", "platformdirs", "pydantic", "bm25s", "scipy"),
})
"""Packages that are imported where they are used: not everybody has them, or their import takes longer than what is done with them."""

SLOW = frozenset({"importlib.metadata", "importlib.resources", "tomllib"})
"""Parts of the standard library that take a tenth as long as all passes, each; most commands start without them."""

START_UP = {
    "kir/faces/cli": "a command imports what it runs",
    "passes/algorithms/_carrier.py": "the gate, for those who check an answer",
    "passes/lowering/lower_tiles.py": "what writes and reads the code of threads, for those who lower",
    "passes/lowering/_named_values.py": "the parser, for those who name a value by its text",
    "passes/scans/_team_steps.py": "the parser and the interpreter, for those who show what threads compute together",
    "passes/scheduling/number_items.py": "the parser, for those who name coordinates by their text",
    "passes/synchronization/extra_barrier.py": "the solver, for those who prove a barrier idle",
    "passes/threads/deal_fragment.py": "the parser, for those who give a layout as text",
    "frontends/cuda/types/number_conversions.py": "NumPy, for numbers that a narrow float dtype holds",
    "frontends/cuda/intrinsics/standard_functions.py": "NumPy, for `numeric_limits` of a float dtype",
    "frontends/_python/host_values.py": "NumPy, for `torch.finfo`",
    "frontends/tilelang/sources/calls.py": "the frontend of CUDA, for kernels that call functions of its source",
    "frontends/tilelang/intrinsics/layout_annotations.py": "NumPy, for layouts of fragments that functions give",
    "kir/rewrite": "the interpreter and the parser, for those who run a pass's cases",
    "kir/analysis": "the solver and the normal form, for those who prove",
    "kir/ir": "what specializes, for those who bind",
    "kir/surface": "the parser of pipelines and the normal form, for those who ask for them",
    "kir/lineage/carrier": "models of data and the gate, for those who ask or check",
    "kir/problem": "models as problems, for those who load one",
    "kir/gate/gpu/references.py": "PyTorch, for those who run a model",
    "kir/learning/forecast/choosing.py": "NumPy and the learned model, or the providers, for those who ask them",
    "kir/learning/tune": "the gate and the device, for those who measure",
    "kir/learning/optimize": "the gate and the device, for those who measure",
    "kir/learning/corpus/hook.py": "it runs inside other programs, and imports what a launch needs when there is one",
    "kir/interp/launch.py": "the adversary, for those who check",
    **{f"{folder}/{name}/__init__.py": "its suffixes are asked before it is needed" for folder in ("frontends", "backends")
       for name in ("cuda", "ptx", "triton", "tilelang") if (folder, name) != ("backends", "ptx")},
}
"""Modules and folders that import KIR's own modules inside functions, so that a command starts before they are needed; and why."""

MOST_FILES = 15
"""Modules side by side in one folder."""

MOST_PACKAGES = 12
"""Packages on the first level of ``kir/``."""

MOST_LINES = 600


@cache
def python_files(*folders: str) -> tuple[Path, ...]:
    """The Python files of top-level folders, each file once (links inside ``kir/`` not followed)."""
    found: list[Path] = []
    for folder in folders:
        for file in sorted((ROOT / folder).rglob("*.py")):
            inside = file.relative_to(ROOT).parts
            if not (inside[0] == "kir" and inside[1] in (*LINKED, "docs")):
                found.append(file)
    return tuple(found)


@dataclass(frozen=True)
class Imported:
    """One import: the line, the package as written (dots for relative ones), the absolute dotted name, and whether it stands in a function."""

    line: int
    written: str
    name: str
    inside: bool


@dataclass(frozen=True)
class Source:
    """What these laws ask of one file, so that each file is parsed once."""

    imports: tuple[Imported, ...]
    bare: tuple[str, ...]
    """What is public in it and says not what it is: ":" and line and name; "" is the module."""


@cache
def source(file: Path, root: Path = ROOT) -> Source:
    parts = file.relative_to(root).with_suffix("").parts
    package = [*(parts if parts[0] in ("kir", "tests") else ("kir", *parts))][:-1]  # of an `__init__`, the package itself
    tree = ast.parse(file.read_bytes())
    found: list[Imported] = []
    waiting: list[tuple[ast.AST, bool]] = [(tree, False)]
    while waiting:
        node, inside = waiting.pop()
        if isinstance(node, ast.Import):
            found += [Imported(node.lineno, alias.name, alias.name, inside) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            module = ".".join([*base, *([node.module] if node.module else [])])
            found += [Imported(node.lineno, node.module or ".", f"{module}.{alias.name}", inside) for alias in node.names]
        within = inside or isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
        waiting += [(s, within) for part in ("body", "handlers", "orelse", "finalbody", "cases") for s in _statements(node, part)]
    public = [x for x in tree.body if isinstance(x, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)) and not x.name.startswith("_")]
    bare = ["" for _ in range(file.name != "__init__.py" and not ast.get_docstring(tree))]
    return Source(tuple(sorted(found, key=lambda x: (x.line, x.name))), (*bare, *(f":{x.lineno} {x.name}" for x in public if not ast.get_docstring(x))))


def _statements(node: ast.AST, part: str) -> list[ast.AST]:
    """The statements in one part of another; the parts of an expression are none."""
    held = getattr(node, part, None)
    return held if isinstance(held, list) else []


def imports(file: Path, root: Path = ROOT) -> Iterator[tuple[int, str]]:
    """Line and absolute dotted name of each import in a file, relative ones resolved."""
    yield from ((x.line, x.name) for x in source(file, root).imports)


@cache
def tracked() -> list[str]:
    listing = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False)
    return (
        listing.stdout.splitlines()
        if listing.returncode == 0
        else [str(p.relative_to(ROOT)) for p in python_files("kir", *LINKED, "tests")]
    )


@pytest.mark.parametrize("folder", LINKED)
def test_folder_is_a_relative_link_inside_the_package(folder: str) -> None:
    link = ROOT / "kir" / folder
    assert link.is_symlink()
    assert str(link.readlink()) == f"../{folder}"
    assert (link / "__init__.py").is_file()


def test_shipped_code_imports_only_kir_and_its_own_folder() -> None:
    wrong = []
    for folder in CODE:
        for file in python_files(folder):
            for line, name in imports(file):
                others = [f"kir.{other}" for other in CODE if other != folder]
                if (
                    any(name == other or name.startswith(f"{other}.") for other in others)
                    or name == "kir.faces"
                    or name.startswith("kir.faces.")
                ):
                    wrong.append(f"{file.relative_to(ROOT)}:{line} imports {name}")
    assert wrong == []


def test_kir_imports_no_plugin_folder() -> None:
    wrong = [
        f"{file.relative_to(ROOT)}:{line} imports {name}"
        for file in python_files("kir")
        for line, name in imports(file)
        if name.split(".")[:2] in [["kir", folder] for folder in CODE]
    ]
    assert wrong == []


def test_dataclasses_are_those_that_load_fast() -> None:
    """docs/decisions/0015-dataclasses.md"""
    own = re.compile(r"^from dataclasses import .*\bdataclass\b", re.MULTILINE)
    exempt = {"kir/base/dataclass.py"}  # the module itself
    found = {str(file.relative_to(ROOT)) for file in python_files("kir", *CODE) if own.search(file.read_text("utf-8"))}
    assert found - exempt == set()


def test_nothing_imports_a_folder_by_its_top_level_name() -> None:
    wrong = [
        f"{file.relative_to(ROOT)}:{line} imports {name}"
        for file in python_files("kir", *LINKED, "tests")
        for line, name in imports(file)
        if name.split(".")[0] in LINKED
    ]
    assert wrong == []


@dataclass(frozen=True)
class House:
    """The imports of some files: ``modules`` by dotted name (a package is its ``__init__``), and for each what it imports, with lines."""

    modules: Mapping[str, Path]
    imports: Mapping[str, Mapping[str, int]]

    @classmethod
    def of(cls, root: Path, files: Iterable[Path]) -> House:
        modules = {dotted(root, file): file for file in files}
        found: dict[str, dict[str, int]] = {}
        for name, file in modules.items():
            rows = found.setdefault(name, {})
            for line, target in imports(file, root):
                own = target if target in modules else target.rpartition(".")[0]
                if own in modules and own != name:
                    rows.setdefault(own, line)
        return cls(modules, found)

    def circle(self) -> list[str]:
        """One circle of imports, each with its line; [] where there is none."""
        return self._first(self.imports)

    def circle_of_rooms(self, package: str) -> list[str]:
        """One circle among the modules and subpackages that stand side by side in a package."""
        graph: dict[str, dict[str, int]] = {}
        for name, targets in self.imports.items():
            room = inside(name, package)
            if room:
                graph.setdefault(room, {}).update({other: line for t, line in targets.items() if (other := inside(t, package)) and other != room})
        return self._first(graph)

    def out_of_order(self, package: str, order: Sequence[str]) -> list[str]:
        """Imports of a package's parts from parts that its order names later, and parts that it does not name."""
        parts = {room for name in self.modules if (room := inside(name, package))}
        wrong = [f"{package}: the order does not name {part}" for part in sorted(parts - set(order))]
        wrong += [f"{package}: the order names {part}, which is not there" for part in order if part not in parts]
        for name, targets in self.imports.items():
            room = inside(name, package)
            for target, line in targets.items():
                other = inside(target, package)
                if room in order and other in order and order.index(other) > order.index(room):
                    wrong.append(f"{self.modules[name]}:{line} imports {target}")
        return wrong

    @staticmethod
    def _first(graph: Mapping[str, Mapping[str, int]]) -> list[str]:
        try:
            TopologicalSorter({name: sorted(targets) for name, targets in sorted(graph.items())}).prepare()
        except CycleError as found:
            names: list[str] = found.args[1][::-1]
            return [f"{a}:{graph[a][b]} imports {b}" for a, b in pairwise(names)]
        return []


def dotted(root: Path, file: Path) -> str:
    """The dotted name of a file: of a linked folder inside ``kir``; a package's name for its ``__init__``."""
    parts = [*file.relative_to(root).with_suffix("").parts]
    return ".".join(parts if parts[0] not in CODE else ["kir", *parts]).removesuffix(".__init__")


def inside(name: str, package: str) -> str:
    """The module or subpackage right inside a package that a module belongs to; "" outside of it, and for the package itself."""
    return name.removeprefix(f"{package}.").partition(".")[0] if name.startswith(f"{package}.") else ""


def stated_order(init: Path) -> list[str]:
    """The order that a package's ``__init__`` states in its docstring: ``Order: a, b, c.``"""
    found = re.search(r"^Order: ([\w, \n]+)\.", ast.get_docstring(ast.parse(init.read_bytes())) or "", re.MULTILINE)
    return re.split(r",\s+", found[1]) if found else []


@pytest.fixture(scope="module")
def house() -> House:
    return House.of(ROOT, python_files("kir", *CODE))


def packages_with_rooms(house: House) -> list[str]:
    """Packages that hold packages."""
    inits = {name for name, file in house.modules.items() if file.name == "__init__.py"}
    return sorted({name.rpartition(".")[0] for name in inits} & inits)


def test_no_import_goes_in_a_circle(house: House) -> None:
    """Wherever the import stands: at the top, inside a function, or for types alone."""
    assert house.circle() == []
    for package in {name.rpartition(".")[0] for name in house.modules} - {""}:
        assert house.circle_of_rooms(package) == [], package


def test_rooms_import_only_from_those_before_them(house: House) -> None:
    wrong = []
    for package in packages_with_rooms(house):
        wrong += house.out_of_order(package, [*stated_order(house.modules[package]), *(CODE if package == "kir" else ())])
    assert wrong == []


def test_a_planted_circle_is_named(tmp_path: Path) -> None:
    for name, text in {"kir/__init__.py": "", "kir/a.py": "def f():\n    from kir.b import g\n", "kir/b.py": "from kir.room.c import h\n",
                       "kir/room/__init__.py": '"""Order: c."""\n', "kir/room/c.py": "import kir.a\n", "kir/lone.py": "import kir.a\n"}.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    planted = House.of(tmp_path, sorted(tmp_path.rglob("*.py")))
    assert sorted(planted.circle()) == ["kir.a:2 imports kir.b", "kir.b:1 imports kir.room.c", "kir.room.c:1 imports kir.a"]
    assert len(planted.circle_of_rooms("kir")) == 3 and planted.circle_of_rooms("kir.room") == []
    assert planted.out_of_order("kir", ["a", "b", "room", "gone"]) == [
        "kir: the order does not name lone", "kir: the order names gone, which is not there",
        f"{tmp_path}/kir/a.py:2 imports kir.b", f"{tmp_path}/kir/b.py:1 imports kir.room.c"]


def test_folders_are_small(house: House) -> None:
    beside = Counter(file.parent.relative_to(ROOT) for file in (*house.modules.values(), *python_files("tests", "benchmarks")) if file.name != "__init__.py")
    assert {str(folder): count for folder, count in beside.items() if count > MOST_FILES} == {}
    first = {name.split(".")[1] for name in house.modules if name.count(".") >= 1} - set(CODE)
    assert len(first) <= MOST_PACKAGES and beside[Path("kir")] == 0, sorted(first)


def test_imports_inside_functions_are_of_what_is_optional_or_for_a_quick_start(house: House) -> None:
    wrong = []
    for file in house.modules.values():
        place = str(file.relative_to(ROOT))
        if any(place == known or place.startswith(f"{known}/") for known in START_UP):
            continue
        wrong += [f"{place}:{x.line} imports {x.written}" for x in source(file).imports if x.inside and x.name not in SLOW
                  and x.written.partition(".")[0] not in OPTIONAL]
    assert wrong == []


def test_every_module_is_imported_without_what_is_optional(house: House) -> None:
    """A light environment has no torch, Triton or TileLang: only what runs inside their processes may ask for them when it is imported. Frontends, which come
    first here, read kernels without what interprets them, and without NumPy, which takes a tenth of a second to load."""
    absent = sorted(OPTIONAL - {"numpy", "rich", "jinja2", "platformdirs", "pydantic", "z3", "ml_dtypes"})
    names = sorted(name for name, file in house.modules.items() if file.stem not in ("__main__", "sitecustomize"))
    script = f"""
import importlib, sys
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition('.')[0] in {absent!r}:
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Absent())
for name in ('cuda', 'triton', 'tilelang', 'ptx'):
    importlib.import_module(f'kir.frontends.{{name}}.frontend')
print(*sorted({{'kir.interp.launch', 'kir.interp.numerics.number', 'numpy', 'ml_dtypes'}} & sys.modules.keys()))
for name in {names!r}:
    try:
        importlib.import_module(name)
    except ModuleNotFoundError as bad:
        print(name)
"""
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["kir.backends.tilelang._served", "kir.backends.triton._served", "kir.problem.model_run", "kir.problem.naive.recording",
                                   "kir.problem.rounding_noise"]


def test_the_root_has_no_other_rooms() -> None:
    rooms = {"kir", *LINKED, "tests", "docs", "benchmarks", ".ci"}
    assert {name.partition("/")[0] for name in tracked() if "/" in name} <= rooms, "what a run leaves behind is no part of the code"


def test_files_are_short() -> None:
    long = {
        str(file.relative_to(ROOT)): lines
        for file in python_files("kir", *CODE, "tests")
        if (lines := len(file.read_text(encoding="utf-8").splitlines())) > MOST_LINES
    }
    assert long == {}


def test_no_eight_lines_of_a_pass_stand_in_another(tmp_path: Path) -> None:
    assert repeated(ROOT / "passes", 8).runs == (), "what two passes need stands once, in kir/rewrite/match/ or in their family"
    for name in ("one", "two"):
        body = "".join(f"    print({k})\n" for k in (*range(8), repr(name)))
        (tmp_path / f"{name}.py").write_text(f'"""Own words."""\nimport re\n\n\ndef planted() -> None:\n{body}')
    found = repeated(tmp_path, 8)
    assert (found.code, found.lines) == (20, 9) and found.runs == (("one.py:5", "two.py:5"), ("one.py:6", "two.py:6"))


def test_no_file_is_called_utils_or_helpers() -> None:
    words = re.compile(r"(^|[_-])(utils?|helpers?|misc|common)([_-]|$)")
    assert [name for name in tracked() if any(words.search(Path(part).stem) for part in Path(name).parts)] == []


def test_no_star_imports_and_no_unexplained_ignores() -> None:
    wrong = []
    for file in python_files("kir", *CODE):
        for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), start=1):
            if re.search(r"\bimport \*", line) or re.search(r"#\s*type:\s*ignore(\[[\w-]+\])?\s*$", line):
                wrong.append(f"{file.relative_to(ROOT)}:{number}: {line.strip()}")
    assert wrong == []


def test_what_is_kept_with_a_node_has_a_name_of_one_file() -> None:
    """Two files that keep something with a node under one name would be given one another's."""
    kept: dict[str, set[str]] = {}
    for file in python_files("kir", *CODE):
        for key in re.findall(r'\bonce\([^,()]+, "(\w+)"', file.read_text(encoding="utf-8")):
            kept.setdefault(key, set()).add(str(file.relative_to(ROOT)))
    assert "_places" in kept and {key: sorted(files) for key, files in kept.items() if len(files) > 1} == {}


def test_every_id_that_the_code_raises_is_explained_and_every_row_is_used() -> None:
    pattern = re.compile(r"""["'](KIR-[A-Z]\d{3})["']""")
    raised: dict[str, str] = {}
    for file in python_files("kir", *CODE):
        for id_ in pattern.findall(file.read_text(encoding="utf-8")):
            raised.setdefault(id_, str(file.relative_to(ROOT)))
    raised = {id_: file for id_, file in raised.items() if id_[4] != "P"}
    rows = {id_ for id_ in explanations() if id_[4] != "P"}
    assert {id_: file for id_, file in raised.items() if id_ not in rows} == {}, "raised, but without a row in grammars/diagnostics/"
    assert sorted(rows - set(raised)) == [], "a row that no code raises"
