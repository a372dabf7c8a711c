"""Identifiers of a CUDA file renamed, so that it stays the same kernel: all mentions of one name within one function, or, of what a file that stands alone
declares itself (fields, functions, macros, constants), within the file."""
from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache, cached_property

import tree_sitter
import tree_sitter_cpp

from benchmarks.renamings.python_source import Name
from kir.backends._cpp_names import RESERVED

Node = tree_sitter.Node
_CUDA = ("__global__", "__shared__", "__constant__", "__device__", "__host__", "__forceinline__", "__noinline__", "__grid_constant__", "__restrict__",
         "__inline_hint__", "__managed__")
_CALLED = re.compile(r"__launch_bounds__\s*\([^()]*(?:\([^()]*\)[^()]*)*\)|__cluster_dims__\s*\([^()]*\)|__align__\s*\(\d+\)|__maxnreg__\s*\(\d+\)")
_TYPES = frozenset({"size_t", "ssize_t", "ptrdiff_t", "intptr_t", "uintptr_t", "charptr_t", "nullptr_t", "max_align_t", "char8_t", "char16_t",
                    "char32_t", "char64_t"}) | {
    f"{u}int{b}_t" for u in ("", "u") for b in (8, 16, 32, 64)} | {"__half", "__nv_bfloat16"}
_ELSEWHERE = frozenset({
    "std", "cuda", "assert", "printf", "NULL", "defined", "offsetof", "errno", "EOF", "stdin", "stdout", "stderr", "va_list", "linux", "unix", "final",
    "override", "import", "module", "concept", "co_await", "co_return", "co_yield", "consteval", "constinit", "char8_t", "asm", "typeof", "reflexpr",
    "synchronized", "thread_local", "restrict", "and_eq", "xor_eq", "compl", "bitand", "bitor", "not_eq", "or_eq", "requires"})
_COMPONENTS = frozenset({"x", "y", "z", "w", "lo", "hi", "first", "second"})
_DECLARING = ("parameter_declaration", "optional_parameter_declaration", "declaration", "for_range_loop")


@dataclass
class CudaSource:
    """A file and its kernel; `around` are all words of the files that it includes, `macros` those of what they define."""

    text: str
    kernel: str
    around: frozenset[str] = frozenset()
    macros: frozenset[str] = frozenset()
    alone: bool = False
    root: Node = field(init=False)
    data: bytes = field(init=False)

    def __post_init__(self) -> None:
        plain = _CALLED.sub(lambda m: " " * len(m[0].encode()), self.text)
        for word in _CUDA:
            plain = re.sub(rf"\b{word}\b", ("static" if len(word) > 8 and word != "__restrict__" else "").ljust(len(word)), plain)
        plain = re.sub(r"(?m)^[ \t]*#(?:[^\n]*\\\n)*[^\n]*", lambda m: "".join(c if c == "\n" else " " for c in m[0]), plain)
        self.data = plain.encode()
        self.root = _parser().parse(self.data).root_node

    @cached_property
    def words(self) -> frozenset[str]:
        """Every word of the file."""
        return frozenset(re.findall(r"[^\W\d]\w*", self.text))

    @cached_property
    def directives(self) -> frozenset[str]:
        """Words of the lines that the preprocessor reads."""
        return frozenset(w for line in re.findall(r"(?m)^[ \t]*#((?:[^\n]*\\\n)*[^\n]*)", self.text) for w in re.findall(r"[^\W\d]\w*", line))

    @cached_property
    def functions(self) -> dict[str, Node]:
        """Functions outside classes by name, with their template lists; those of one name are left out, but for the kernel."""
        out: dict[str, list[Node]] = {}
        for node in _below(self.root, ("class_specifier", "struct_specifier")):
            if node.type == "function_definition" and (name := _function_name(node)):
                outer = node.parent if node.parent is not None and node.parent.type == "template_declaration" else node
                out.setdefault(name, []).append(outer)
        return {k: v[0] for k, v in out.items() if len(v) == 1}

    @cached_property
    def globals(self) -> frozenset[str]:
        """Names that the file declares outside functions."""
        out: set[str] = set(self.functions)
        for node in _below(self.root, ("function_definition",)):
            if node.type in ("class_specifier", "struct_specifier", "enum_specifier", "namespace_definition", "alias_declaration", "enumerator"):
                out |= {_text(c) for c in node.named_children[:1]}
            elif node.type in ("declaration", "type_definition", "field_declaration"):
                out |= set(_declared(node))
        return frozenset(out)

    def reached(self) -> list[str]:
        """The kernel, and the functions of this file that it mentions, directly or not."""
        if self.kernel not in self.functions:
            return []
        out, waiting = [self.kernel], [self.kernel]
        while waiting:
            said = {_text(x) for x in _leaves(self.functions[waiting.pop()]) if x.type == "identifier"}
            for name in sorted(said & self.functions.keys() - set(out)):
                out.append(name)
                waiting.append(name)
        return out

    def callers(self) -> list[str]:
        """Parameters and template parameters of the kernel."""
        node = self.functions.get(self.kernel)
        if node is None:
            return []
        out = []
        for x in _walk(node):
            if x.type == "parameter_list" and x.parent is not None and x.parent.type == "function_declarator":
                for p in x.named_children:
                    out += list(_declared(p))
                break
        for x in node.named_children:
            if x.type == "template_parameter_list":
                out += [w for p in x.named_children for w in _template_name(p)]
        return out

    def names(self) -> list[Name]:
        """What may be renamed."""
        out = []
        for function in self.reached():
            node = self.functions[function]
            if node.has_error:
                continue
            known = self.callers() if function == self.kernel else []
            inside: set[str] = {w for x in _walk(node) if x.type in _DECLARING or x.type == "structured_binding_declarator" for w in _declared(x)}
            inside |= {w for x in node.named_children if x.type == "template_parameter_list" for p in x.named_children for w in _template_name(p)}
            mentioned = list(_leaves(node))
            for w in sorted(inside):
                scoped = any(_text(x) == w and x.type == "namespace_identifier" for x in mentioned)
                if w in self.directives or w in self.macros or w in self.globals or scoped or w == self.kernel:
                    continue
                out.append(Name(w, "parameter" if w in known else "local", function))
        if self.alone:
            out += [Name(w, "file", "") for w in sorted(self._own_words())]
        return out

    def _own_words(self) -> set[str]:
        """What a file that stands alone declares outside functions: fields, functions, constants, types, macros; names with one meaning."""
        defined = set(re.findall(r"(?m)^[ \t]*#[ \t]*define[ \t]+([^\W\d]\w*)", self.text))
        fields = {w for x in _walk(self.root) if x.type == "field_declaration" for w in _declared(x)}
        found = {w for w in (self.globals | defined | fields) if w not in self.around and w not in _COMPONENTS and w != self.kernel and len(w) > 1}
        return {w for w in found if w not in RESERVED and not re.search(rf'["<][^"\n]*\b{w}\b[^"\n]*[">]', self.text)}

    def allows(self, name: Name, new: str, taken: frozenset[str] = frozenset()) -> bool:
        """Whether a name may be called so in this file and stay what it is."""
        if not re.fullmatch(r"[A-Za-z_]\w*", new) or not new.isascii() or new in self.words | self.around | taken | _LANGUAGE | _TYPES | _ELSEWHERE:
            return False
        if new.startswith("__") or re.match(r"_[A-Z]", new) or (name.kind == "file" and (new in RESERVED or _is_library(new))):
            return False
        return not new.isupper() or len(new) < 4 or not _is_library(new)

    def renamed(self, names: Mapping[Name, str]) -> str:
        """The file with names renamed."""
        edits: dict[tuple[int, int], str] = {}
        raw = self.text.encode()
        for name, new in names.items():
            if name.kind == "file":
                for m in re.finditer(rb"(?<![\w])" + name.text.encode() + rb"(?![\w])", raw):
                    edits[m.start(), m.end()] = new
                continue
            for x in _leaves(self.functions[name.function]):
                if x.type in ("identifier", "type_identifier") and _text(x) == name.text:
                    edits[x.start_byte, x.end_byte] = new
        for (start, end), new in sorted(edits.items(), reverse=True):
            raw = raw[:start] + new.encode() + raw[end:]
        return raw.decode()


_LANGUAGE = frozenset({
    "alignas", "alignof", "and", "asm", "auto", "bool", "break", "case", "catch", "char", "class", "const", "constexpr", "const_cast", "continue", "decltype",
    "default", "delete", "do", "double", "dynamic_cast", "else", "enum", "explicit", "export", "extern", "false", "float", "for", "friend", "goto", "if",
    "inline", "int", "long", "mutable", "namespace", "new", "noexcept", "not", "nullptr", "operator", "or", "private", "protected", "public", "register",
    "reinterpret_cast", "return", "short", "signed", "sizeof", "static", "static_assert", "static_cast", "struct", "switch", "template", "this", "throw",
    "true", "try", "typedef", "typeid", "typename", "union", "unsigned", "using", "virtual", "void", "volatile", "wchar_t", "while", "xor", "main"})


def _is_library(word: str) -> bool:
    """Whether CUDA's headers have a name, or may have it: what a function of a file may not be called."""
    return word in _library()


@cache
def _library() -> frozenset[str]:
    from benchmarks.renamings.words import vocabulary

    return frozenset(vocabulary())


@cache
def _parser() -> tree_sitter.Parser:
    return tree_sitter.Parser(tree_sitter.Language(tree_sitter_cpp.language()))


def _text(node: Node) -> str:
    return (node.text or b"").decode()


def _walk(node: Node) -> Iterator[Node]:
    yield node
    for c in node.children:
        yield from _walk(c)


def _leaves(node: Node) -> Iterator[Node]:
    return (x for x in _walk(node) if not x.children)


def _below(node: Node, closed: tuple[str, ...]) -> Iterator[Node]:
    """The nodes below, not those inside nodes of the kinds `closed`."""
    for c in node.named_children:
        yield c
        if c.type not in closed:
            yield from _below(c, closed)


def _definition(node: Node) -> Node:
    return node if node.type == "function_definition" else next((c for c in node.named_children if c.type == "function_definition"), node)


def _function_name(node: Node) -> str:
    d = node.child_by_field_name("declarator")
    while d is not None and d.type in ("pointer_declarator", "reference_declarator"):
        d = d.child_by_field_name("declarator") or (d.named_children[-1] if d.named_children else None)
    if d is None or d.type != "function_declarator":
        return ""
    name = d.child_by_field_name("declarator")
    return _text(name) if name is not None and name.type == "identifier" else ""


def _template_name(p: Node) -> list[str]:
    if p.type.endswith("type_parameter_declaration"):
        return [_text(c) for c in p.named_children[:1] if c.type == "type_identifier"]
    return list(_declared(p))


def _declared(node: Node) -> Iterator[str]:
    """The names that a declaration gives."""
    if node.type == "structured_binding_declarator":
        yield from (_text(c) for c in node.named_children if c.type == "identifier")
        return
    for d in node.children_by_field_name("declarator"):
        x: Node | None = d
        while x is not None and x.type not in ("identifier", "field_identifier"):
            if x.type in ("function_declarator", "structured_binding_declarator"):
                x = None
                break
            inner = x.child_by_field_name("declarator")
            last = x.named_children[-1] if x.type in ("reference_declarator", "variadic_declarator") and x.named_children else None
            x = inner if inner is not None else last
        if x is not None:
            yield _text(x)
