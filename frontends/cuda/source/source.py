"""CUDA source as syntax trees: a file is preprocessed, the words that tree-sitter-cpp does not know are replaced by C++ words of the same
length, and the result is parsed. A `Unit` is one file of a translation unit; `Sources` finds and parses them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import field
from functools import cache
from importlib import resources
from os.path import isfile, join
from pathlib import Path

import tree_sitter
import tree_sitter_cpp

from kir.base.dataclass import dataclass
from kir.base.diagnostic import KirError, Origin, error
from kir.hardware.target import target as known_target

from ..suffixes import WITHIN
from ..types.c_types import named_type
from ..types.errors import NotUnderstood
from .in_strings import only_strings
from .lambdas import with_classes
from .preprocessor import Macro, Mapped, Preprocessor
from .stated_macros import stated_macros
from .tree import Project, build_of, includer_of, project_of, root_of

Node = tree_sitter.Node
MAX_INCLUDES = 64
"""How deep includes may nest."""

_STAND_INS = {
    "__global__": "__thread", "__shared__": "register", "__constant__": "__inline__", "__device__": "inline", "__host__": "inline",
    "__forceinline__": "", "__noinline__": "", "__grid_constant__": "", "__managed__": "", "__tile_builtin__": "", "__nv_pure__": "",
    "__inline_hint__": "", "__extension__": "", "__cluster_dims__": "",
}  # fmt: skip
"""CUDA words, and the C++ storage class (or nothing) that stands for each; `register` is then shared memory, `__thread` a kernel."""
_CUDA = re.compile(
    r'"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'|<<<|\b(?:' + "|".join(_STAND_INS) + r"|__launch_bounds__|__maxnreg__|__align__|__CUDA_ALIGN__|__attribute__"
    r"|__declspec|__builtin_align__|__restrict|requires)\b"
)


@cache
def _parser() -> tree_sitter.Parser:
    return tree_sitter.Parser(tree_sitter.Language(tree_sitter_cpp.language()))


@dataclass
class Unit:
    """A parsed file. `bounds` are the texts of `__launch_bounds__` by offset in the parsed text, `launches` those of `<<<..>>>`."""

    path: Path
    mapped: Mapped
    text: bytes
    root: Node
    bounds: list[tuple[int, str]] = field(default_factory=list)
    launches: list[tuple[int, str]] = field(default_factory=list)
    missing: list[tuple[str, Origin]] = field(default_factory=list)
    ascii: bool = True

    def origin(self, node: Node) -> Origin:
        """Where a node stands in the source."""
        return self.mapped.origin(self._at(node.start_byte), self._at(node.end_byte))

    def _at(self, byte: int) -> int:
        return byte if self.ascii else len(self.text[:byte].decode(errors="replace"))

    def text_of(self, node: Node) -> str:
        """The preprocessed text of a node."""
        return self.text[node.start_byte : node.end_byte].decode(errors="replace")

    def source_of(self, node: Node) -> str:
        """The source of a node, as it was written."""
        start, end = self.mapped.offset(self._at(node.start_byte)), self.mapped.offset(self._at(max(node.start_byte, node.end_byte - 1))) + 1
        return self.mapped.source[start:end]

    def faults(self, node: Node) -> Iterator[Node]:
        """Nodes below that do not parse."""
        if not node.has_error:
            return
        if node.type == "ERROR" or node.is_missing:
            yield node
            return
        for child in node.children:
            yield from self.faults(child)


def parse_text(mapped: Mapped, path: Path) -> Unit:
    """The unit of a preprocessed file."""
    bounds: list[tuple[int, str]] = []
    launches: list[tuple[int, str]] = []
    text = mapped.text
    pieces: list[str] = []
    at = 0
    for m in _CUDA.finditer(text):
        if m.start() < at or m[0][0] in "\"'":
            continue
        word, end = m[0], m.end()
        if word == "<<<":
            close = text.find(">>>", end)
            if close < 0:
                continue
            launches.append((m.start(), text[end:close]))
            made, end = re.sub(r"[^\n]", " ", text[m.start() : close + 3]), close + 3
        elif word in _STAND_INS:
            made = _STAND_INS[word].ljust(len(word))
            if word == "__cluster_dims__":
                end = _closing(text, end)
                bounds.append((m.start(), "cluster " + text[m.end() : end].strip()[1:-1]))
                made = re.sub(r"[^\n]", " ", text[m.start() : end])
        elif word in ("__align__", "__builtin_align__", "__CUDA_ALIGN__"):
            made = "alignas".ljust(len(word))
        elif word == "__restrict":
            made = "const".ljust(len(word))
        elif word == "requires":
            continue
        else:
            end = _closing(text, end)
            if word == "__launch_bounds__":
                bounds.append((m.start(), text[m.end() : end].strip()[1:-1]))
            elif word == "__maxnreg__":
                bounds.append((m.start(), "maxnreg " + text[m.end() : end].strip()[1:-1]))
            made = re.sub(r"[^\n]", " ", text[m.start() : end])
            if word == "__attribute__" and (stated := _STAND_INS.get(f"__{text[m.end() : end].strip(' ()')}__")):
                made = stated + made[len(stated):]  # `__attribute__((shared))`
        pieces += [text[at : m.start()], made]
        at = end
    pieces.append(text[at:])
    shown = _as_grammar_has_it(_without_lone_parentheses("".join(pieces)))
    data = shown.encode()
    tree = _parser().parse(data)
    return Unit(path, mapped, data, tree.root_node, bounds, launches, ascii=len(data) == len(shown))


_LONE = re.compile(r"(?<=[=+\-*/%&|^<,(?:!\[{])(\s*)\(([a-z]\w*)\)(?=\s*[+\-*&][^=+\-&>)])")
_TYPES = re.compile(r"\b(?:struct|class|typename|using|union|enum|typedef\s[^;{}]*?)\s+(\w+)\b")


def _without_lone_parentheses(text: str) -> str:
    """Text with `(name) + x` as ` name  + x`, where the name is that of no type: the grammar takes it for a cast of `+x`."""
    types = set(_TYPES.findall(text))

    def bare(m: re.Match[str]) -> str:
        name = m[2]
        is_type = name in types or name.endswith("_t") or named_type(name) is not None or name in ("char", "auto", "const")
        return m[0] if is_type else f"{m[1]} {name} "

    return _LONE.sub(bare, text)


_CALLED_TYPE = re.compile(r"(?<=[=(+\-*/%?:&|<>,!\[{;])(\s*|\s*\breturn\s+)typename(?=\s+[A-Za-z_]\w*\s*(?:<[\w\s:,*&]*>)?(?:\s*::\s*(?:template\s+)?\w+"
                          r"(?:<[\w\s:,*&]*>)?)+\s*[({])")
_NAMED_USING = re.compile(r"(?<=\busing )typename(?=\s+[\w:<>, ]+::\s*\w+\s*;)")
_BARE_ENUM = re.compile(r"\b(enum)(\s*:\s*[\w ]+?)(?=\s*\{)")


_CAST_OF_NAME = re.compile(r"((?<=[(])[\w:]+(?:<[\w\s:,]*>)?(?:\s+[\w:]+)*\s*\*+\s*\)\s*)\((\s*\w+\s*)\)(?=\s*[-+*&][^-+&=])")
"""`(T*)(p) + 1`, which a grammar without names takes for casts of `+1`."""


_LATE_FRIEND = re.compile(r"\b((?:(?:inline|constexpr|static)\s+)+)friend\b")
"""`inline friend`, which the grammar knows with `friend` first."""


def _as_grammar_has_it(text: str) -> str:
    """Text with blanks for what the grammar does not know and no meaning hangs on: `typename` before the type of a call, the type below an enumeration
    without a name. `friend` comes first."""
    text = _LATE_FRIEND.sub(lambda m: "friend" + f" {m[1]}"[:len(m[1])], text) if "friend" in text else text
    text = _CAST_OF_NAME.sub(lambda m: f"{m[1]} {m[2]} ", text)
    text = _CALLED_TYPE.sub(lambda m: m[1] + " " * 8, text)
    text = _NAMED_USING.sub(" " * 8, text)
    return _BARE_ENUM.sub(lambda m: m[1] + " " * len(m[2]), text)


def _closing(text: str, at: int) -> int:
    """The end of the parentheses that open at or after `at`; `at` itself when none do."""
    m = re.compile(r"\s*\(").match(text, at)
    if m is None:
        return at
    depth, k = 0, m.end() - 1
    while k < len(text):
        depth += {"(": 1, ")": -1}.get(text[k], 0)
        k += 1
        if depth == 0:
            return k
    return len(text)


def predefined(name: str) -> dict[str, str]:
    """Macros that nvcc defines for a target. Raises KirError KIR-F206 for a target that KIR does not know."""
    try:
        arch = known_target(name).architecture
    except Exception as bad:
        raise error("KIR-F206", f"there is no target '{name}'", needs="sm_80, sm_90a or another one that `kir doctor` lists") from bad
    major, minor = arch.capability
    return {
        "__CUDA_ARCH__": str(major * 100 + minor * 10), "__CUDACC__": "1", "__NVCC__": "1", "__CUDACC_VER_MAJOR__": "13",
        "__CUDACC_VER_MINOR__": "0", "CUDA_VERSION": "13000", "CUDART_VERSION": "13000", "__cplusplus": "201703L", "__GNUC__": "13",
        "__x86_64__": "1", "__LP64__": "1", "__linux__": "1", "__STDC__": "1", "__CUDA__": "1", "NDEBUG": "1",
        **({"__CUDA_ARCH_FEAT_SM90_ALL": "1"} if name.endswith("90a") else {}),
    }  # fmt: skip


FOREIGN = {**dict.fromkeys(("CUTLASS_DEVICE", "CUTE_DEVICE"), "__forceinline__ __device__"),
           **dict.fromkeys(("CUTLASS_HOST_DEVICE", "CUTE_HOST_DEVICE", "THRUST_HOST_DEVICE"), "__forceinline__ __device__ __host__"),
           **dict.fromkeys(("C10_DEVICE", "C10_HOST_DEVICE", "THRUST_DEVICE"), "__device__"), "C10_WARP_SIZE": "32", "CUTE_GRID_CONSTANT": "__grid_constant__",
           **dict.fromkeys(("CUTLASS_GRID_CONSTANT", "C10_RESTRICT", "CUTLASS_PRAGMA_UNROLL", "CUTE_UNROLL"), "")}
"""Macros of headers that are often not there, where all that they say is what a declaration is."""


_DISPATCH = """#define AT_DISPATCH_SWITCH(type, name, ...) __VA_ARGS__
#define AT_DISPATCH_CASE(which, ...) AT_DISPATCH_ONE(which, __VA_ARGS__);
#define AT_DISPATCH_CASE_FLOATING_TYPES(...) AT_DISPATCH_FLOATING_TYPES(0, 0, __VA_ARGS__);
#define AT_DISPATCH_CASE_INTEGRAL_TYPES(...) AT_DISPATCH_INTEGRAL_TYPES(0, 0, __VA_ARGS__);
#define AT_DISPATCH_CASE_ALL_TYPES(...) AT_DISPATCH_ALL_TYPES(0, 0, __VA_ARGS__);
#define AT_DISPATCH_CASE_FLOATING_TYPES_AND_HALF(...) AT_DISPATCH_FLOATING_TYPES_AND_HALF(0, 0, __VA_ARGS__);
"""
"""What torch's Dispatch.h makes of a switch over dtypes: one call for each of its cases."""


@cache
def _first_macros(target: str) -> Mapping[str, Macro]:
    """The macros that each translation unit begins with. Raises KirError KIR-F206 for a target that KIR does not know."""
    made = Preprocessor({**FOREIGN, **predefined(target)})
    made.run("Dispatch.h", _DISPATCH, lambda name, quoted, where: None)
    return made.macros


class Sources:
    """The files of one translation unit, in the order in which they are reached, each once."""

    def __init__(self, target: str, folders: tuple[Path, ...] = ()) -> None:
        """`folders` are looked into before those that the project's build names."""
        self.preprocessor = Preprocessor({})
        self.preprocessor.macros |= _first_macros(target)
        self.preprocessor.known_headers = lambda name, quoted: is_system(name)
        self.folders, self.target = folders, target
        self.project: Project | None = None
        self.units: list[Unit] = []
        self.seen: set[Path] = set()
        self.order: list[Unit] = []

    def read(self, path: Path, depth: int = 0) -> Unit:
        """A file and what it includes. Raises KirError KIR-F201 (it cannot be read), KIR-F202 (includes nest without end)."""
        if not depth and not self.units:
            build = build_of(path)
            self.folders += build.folders
            if (root := root_of(path)) is not None:
                stated = stated_macros(root, known_target(self.target).architecture.capability)
                self.preprocessor.predefine((name, value) for name, value in stated if name not in self.preprocessor.macros)
            self.preprocessor.predefine(build.macros)
        try:
            data = path.read_bytes()
        except OSError as bad:
            raise error("KIR-F201", f"{path.name} cannot be read: {bad.__class__.__name__}") from bad
        if b"\0" in data:
            raise error("KIR-F201", f"{path.name} is no text: its byte {data.index(0)} is zero", needs="CUDA C++ as text")
        try:
            source = data.decode("utf-8")
        except UnicodeDecodeError:
            source = data.decode("latin-1")
        source = source.replace("\r\n", "\n").replace("\r", "\n")
        source = only_strings(source) if path.suffix in WITHIN else source
        self.seen.add(path.resolve())
        missing: list[tuple[str, Origin]] = []

        def include(name: str, quoted: bool, where: Origin) -> None:
            found = self.find(name, quoted, path)
            if found is None:
                if not is_system(name):
                    missing.append((name, where))
                return
            if found.resolve() in self.seen:
                return
            if depth >= MAX_INCLUDES:
                raise error("KIR-F202", f"includes nest more than {MAX_INCLUDES} deep", origin=where)
            self.read(found, depth + 1)

        def stopped(words: str, where: Origin) -> None:
            missing.append((f"what '#error {words[:60]}' wants", where))

        mapped = self.preprocessor.run(str(path), source, include, stopped if depth else None)
        unit = parse_text(with_classes(mapped), path)
        unit.missing = missing
        before, self.units = self.units, []
        for name in self._own_headers() if not depth else ():
            if (own := own_header(name)) is not None and own.resolve() not in self.seen:
                self.read(own, depth + 1)
        self.units += [*before, unit]  # what the files use of those is declared before them
        return unit

    def _own_headers(self) -> list[str]:
        """The headers of `grammars/cuda/` of which a file that was read names something."""
        read = [path.read_bytes() for path in self.seen]
        return [name for name, words in _NAMED_IN.items() if any(words.search(data) is not None for data in read)]

    def find(self, name: str, quoted: bool, by: Path) -> Path | None:
        """The file of an include: beside the one that names it, in a given folder, below a folder above it, or else the header of the project whose path
        ends so."""
        tried = ([by.parent] if quoted else []) + list(self.folders) + list(by.resolve().parents)[:12]
        for folder in map(str, tried):
            for candidate in (join(folder, name), join(folder, "include", name)):
                if isfile(candidate):
                    return Path(candidate)
        if (own := own_header(name)) is not None or (is_system(name) and not quoted):
            return own
        if self.project is None:
            self.project = project_of(by)
        return self.project.header(name, by)


def unit_of(source: Path, target: str) -> tuple[Sources, Unit]:
    """A file in its translation unit: its own, or, of a header that includes nothing of its project, or names a namespace that it includes nothing of, that
    of the file that includes it. Raises KirError KIR-F201 to KIR-F205."""
    sources = Sources(target)
    main = sources.read(source)
    if source.suffix == ".cu" or root_of(source) is None:
        return sources, main
    if sum(1 for u in sources.units if own_header(u.path.name) is None) > 1 and not _elsewhere(source, [u.path for u in sources.units]):
        return sources, main
    by = includer_of(source, project_of(source))
    if by is None:
        return sources, main
    whole = Sources(target)
    try:
        whole.read(by)
    except KirError:
        return sources, main
    return next(((whole, u) for u in whole.units if u.path.resolve() == source.resolve()), (sources, main))


_OF_OTHERS = frozenset(b"std cuda cub cg cooperative_groups nvcuda thrust nv at c10 torch cute cutlass aten".split())
"""Namespaces that come from outside of a project."""


def _elsewhere(source: Path, units: list[Path]) -> bool:
    """Whether a header calls functions of a namespace, or its kernels take parameters of types, that nothing declares of what it includes: who includes
    it brings that."""
    text = source.read_bytes()
    called = {(space, name) for space, name in re.findall(rb"(?<![\w:>.])([a-z_]\w*)::([a-z_]\w*)\s*\(", text) if space not in _OF_OTHERS}
    taken = {m[1] for listed in re.findall(rb"__global__[^;{}]*?\w\s*\(([^;{}]*)\)\s*\{", text) for m in _TAKEN.finditer(listed)}
    taken = {x for x in taken if named_type(x.decode()) is None and not x.lower().startswith((b"cu", b"__"))}
    if not called and not taken:
        return False
    texts = [path.read_bytes() for path in units]
    plain = {word for each in texts for word in _PLAIN.findall(each)} if called else set()
    declared = {word for each in texts for word in _DECLARED.findall(each)}
    return any(space not in declared or name not in plain for space, name in called) or not taken <= declared


_TAKEN = re.compile(rb"(?:^|[,(])\s*(?:(?:const|struct|__grid_constant__|typename)\s+)*([A-Za-z_]\w*)\s*(?:const\b\s*)?[\s*&]\s*(?:const\b|__restrict__\b|\s)*"
                    rb"\w+\s*(?=,|$)")
"""A parameter of a plain type, by the name of that."""
_PLAIN = re.compile(rb"(?<![\w:])[A-Za-z_]\w*")
_DECLARED = re.compile(rb"\b(?:namespace|struct|class|union|enum|using|typename|typedef\s[^;{}]*?|#\s*define)\s+(?:\w+::)*(\w+)")


_NAMED_IN = {
    "words.cuh": re.compile(rb"\b(?:atomicInc|atomicDec|__syncthreads_(?:or|and|count)|frexpf?|scalbnf?|__u?rhadd|__uhadd|__u?sad|__funnelshift_[lr]c?"
                            rb"|l?lroundf?|fdimf?)\b"),
    "simd.cuh": re.compile(rb"\b__v(?:add|sub|(?:max|min|(?:cmp|set)(?:ge|gt|le|lt))[us]|(?:cmp|set)(?:eq|ne))[24]\b"),
    "cub.cuh": re.compile(rb"\bcub::|\bcuda::(?:max|min)imum\b"),
    "fp8.cuh": re.compile(rb"\b__nv_cvt_(?:float|halfraw|bfloat16raw)2?_to_fp8(?:x2)?\b|\b__nv_cvt_fp8(?:x2)?_to_halfraw2?\b"),
    "std.cuh": re.compile(rb"\bstd::(?:(?:unary|binary)_function|(?:make_)?pair|optional|array|nullopt)\b|\bfast_mod_div\b"),
    "constants.cuh": re.compile(rb"\bstd::(?:true_type|false_type|(?:integral|bool)_constant\s*<[^;{}>]*>)\s*[{(]"),
    "pipeline.cuh": re.compile(rb"\bcuda::(?:pipeline|make_pipeline|memcpy_async|aligned_size_t)\b|\b(?:cg|cooperative_groups)::memcpy_async\b"),
    "curand.cuh": re.compile(rb"\bcurandState(?:_t|XORWOW(?:_t)?|Philox4_32_10(?:_t)?)?\b"),
    "tilelang.cuh": re.compile(rb"\btl::\w|#include <tl_templates/"),
    "torch.cuh": re.compile(rb"\b(?:TensorInfo|IndexToOffset|(?:Generic)?PackedTensorAccessor(?:32|64)?)\b"),
}
"""Own headers that no include names, by what a file that needs them says."""


@cache
def own_header(name: str) -> Path | None:
    """A header of CUDA's in KIR's own words, where its functions are made of others: `grammars/cuda/`."""
    own = Path(str(resources.files("kir.grammars"))) / "cuda" / name
    return own if "/" not in name and isfile(own) else None


_SYSTEM = re.compile(
    r"(cuda|sanitizer/|crt/|cub/|thrust/|nvtx|cooperative_groups|mma\.h|math|device_|vector_|driver_|builtin_|sm_|curand|cublas|nccl|std|c[a-z]+$|"
    r"algorithm|array|atomic|bit|chrono|complex|concepts|exception|filesystem|fstream|functional|initializer_list|iomanip|ios|iostream|"
    r"iterator|limits|list|map|memory|mutex|new|numeric|optional|ostream|queue|random|regex|set|sstream|stdexcept|string|thread|tuple|"
    r"type_traits|typeinfo|unordered_|utility|variant|vector|version$|ranges|dlpack/|tvm/|assert\.h|float\.h|limits\.h|string\.h|stdint|stdio|stdlib|stddef|unistd|"
    r"errno|sys/|pybind11|torch/|ATen/|c10/|dlfcn|pthread|nvrtc|cassert|source_location|span)"
)


def is_system(name: str) -> bool:
    """Whether a header belongs to CUDA, the C++ library or a host framework: what it declares is in `grammars/cuda_names.toml`."""
    return _SYSTEM.match(name) is not None


def fragment(words: str) -> Node:
    """An expression that stands by itself, such as the operand of a pragma. Raises NotUnderstood where there is none."""
    tree = _parser().parse(f"void f() {{ ({words}); }}".encode())
    node = tree.root_node
    stack = [node]
    while stack:
        top = stack.pop()
        if top.type == "parenthesized_expression":
            return top
        stack += top.named_children
    raise NotUnderstood(f"what stands by itself is no expression: {words}")


def fragment_arguments(words: str) -> Node | None:
    """Template arguments that stand by themselves."""
    tree = _parser().parse(f"void f() {{ k<{words} >(0); }}".encode())
    stack = [tree.root_node]
    while stack:
        top = stack.pop(0)
        if top.type == "template_argument_list":
            return top
        stack += top.named_children
    return None


def fragment_declaration(words: str) -> Node:
    """A declaration that stands by itself, whatever else it could be. Raises ValueError where it can be none."""
    body = _parser().parse(f"void f() {{ typename {words} }}".encode()).root_node.named_children[0].child_by_field_name("body")
    if body is None or not body.named_children or body.named_children[0].type != "declaration" or body.has_error:
        raise ValueError(words)
    return body.named_children[0]


def fragment_type(words: str) -> Node:
    """A type that stands by itself. Raises ValueError where it is none."""
    listed = fragment_arguments(words)
    if listed is None or not listed.named_children:
        raise ValueError(words)
    return listed.named_children[0]
