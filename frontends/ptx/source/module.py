"""A text of PTX as a module: version, target, memory that it declares, and its kernels, each with the form of its body."""

from __future__ import annotations

import re
from bisect import bisect_right
from dataclasses import field
from pathlib import Path

from lark import Token, Tree
from lark.exceptions import UnexpectedInput

from kir.base.dataclass import dataclass
from kir.base.diagnostic import KirError, Origin, error
from kir.ir.grammar.tables import parser
from kir.surface.ptx.form.syntax import Form, Text, Variable, body, refuse_beyond, syntax_error, variable

NEWEST, OLDEST = (9, 9), (6, 0)
"""Versions of the ISA whose texts are read: what came before has shuffles without masks, what comes after is not known."""


@dataclass(frozen=True)
class Lines(Text):
    """The text of a file, whose places are in it."""

    file: str = ""
    starts: tuple[int, ...] = ()

    @classmethod
    def of(cls, text: str, file: str) -> Lines:
        """A text with the offsets at which its lines begin."""
        starts = [0]
        for line in text.splitlines(keepends=True):
            starts.append(starts[-1] + len(line))
        return cls(text, None, file, tuple(starts))

    def at(self, start: int, end: int) -> Origin:
        """The place of a span."""
        first, last = bisect_right(self.starts, start), bisect_right(self.starts, max(start, end))
        return Origin(self.file, first, start - self.starts[first - 1] + 1, last, max(start, end) - self.starts[last - 1] + 1)


@dataclass(frozen=True)
class Entry:
    """A kernel: its parameters in order, what it says of its launch (`reqntid` and others, with their numbers), its body, and where it stands."""

    name: str
    parameters: tuple[Variable, ...]
    tuning: dict[str, tuple[int, ...]]
    form: Form
    span: tuple[int, int]


@dataclass
class Module:
    """What a text holds."""

    text: Lines
    version: tuple[int, int] = (0, 0)
    target: str = ""
    variables: dict[str, Variable] = field(default_factory=dict)
    entries: dict[str, Entry] = field(default_factory=dict)


def module_of(path: Path) -> Module:
    """A file of PTX. Raises KirError: KIR-F310 (no file, no text), KIR-F311 (no PTX of a version that is read), KIR-F300 (what is wrong in it)."""
    try:
        text = path.read_bytes().decode("utf-8")
    except OSError as bad:
        raise error("KIR-F310", f"{path.name} cannot be read: {bad.__class__.__name__}") from bad
    except UnicodeDecodeError as bad:
        raise error("KIR-F310", f"{path.name} is no text: its byte {bad.start} is not UTF-8", needs="PTX as text, not a cubin") from bad
    return parsed(text.rstrip("\0"), str(path))


def parsed(text: str, file: str) -> Module:
    """The module of a text. Raises KirError as `module_of`."""
    lines = Lines.of(text, file)
    m = Module(lines)
    m.version, m.target = _header(lines)
    refuse_beyond(lines)
    try:
        tree = parser("ptx_asm", positions=True, starts=("module",)).parse(text)
    except UnexpectedInput as bad:
        raise syntax_error(lines, bad) from None
    for each in tree.children:
        assert isinstance(each, Tree)
        if each.data == "variable":
            made = variable(each)
            m.variables[made.name] = made
        elif each.data == "entry":
            entry = _entry(each, lines)
            if entry.name in m.entries:
                raise lines.fail("KIR-F302", f"the kernel '{entry.name}' is defined twice", entry.span)
            m.entries[entry.name] = entry
    return m


def _header(lines: Lines) -> tuple[tuple[int, int], str]:
    """Version and target, which a text begins with."""
    bare = re.sub(r"//[^\n]*|/\*.*?\*/", lambda c: " " * len(c[0]), lines.text[:20_000], flags=re.DOTALL)
    head = re.match(r"\s*\.version\s+(\d+)\.(\d+)\s+\.target\s+(\w+)", bare)
    if head is None:
        raise lines.fail("KIR-F311", "this is no PTX: it does not begin with .version and .target", (0, 0), "a text of PTX as a compiler writes it")
    version = int(head[1]), int(head[2])
    if not OLDEST <= version <= NEWEST:
        raise lines.fail("KIR-F311", f"PTX of version {version[0]}.{version[1]} is not read", head.span(1),
                         f"version {OLDEST[0]}.{OLDEST[1]} to {NEWEST[0]}.{NEWEST[1]}")
    size = re.search(r"^\s*\.address_size\s+(\d+)", bare, re.MULTILINE)
    if size is not None and size[1] != "64":
        raise lines.fail("KIR-F311", f"PTX with addresses of {size[1]} bits is not read", size.span(1), "64")
    return version, head[3]


def _entry(tree: Tree[Token], lines: Lines) -> Entry:
    parameters: list[Variable] = []
    tuning: dict[str, tuple[int, ...]] = {}
    name = ""
    rest: list[Tree[Token] | Token] = []
    listed: list[Tree[Token] | Token | None] = [*tree.children]
    for each in listed:
        match each:
            case Token(type="LINKAGE") | None:
                pass
            case Token():
                name = str(each)
            case Tree(data="parameter"):
                parameters.append(variable(each))
            case Tree(data="tuning", children=[word, *numbers]):
                if bad := next((x for x in numbers if x is not None and not str(x).isdigit()), None):
                    raise lines.fail("KIR-F302", f"'{bad}' is no number of threads or CTAs", (each.meta.start_pos, each.meta.end_pos), "a whole number")
                tuning[str(word)[1:]] = tuple(int(str(x)) for x in numbers if x is not None)
            case _:
                rest.append(each)
    span = (0, 0) if tree.meta.empty else (tree.meta.start_pos, tree.meta.end_pos)
    return Entry(name, tuple(parameters), tuning, body(Tree("block", rest), lines), span)


__all__ = ["Entry", "KirError", "Lines", "Module", "module_of", "parsed"]
