"""The preprocessor: conditionals evaluated for a stated target, macros expanded, every character of the result mapped to its source.

Comments and directives become blanks of equal length, so that without macros all offsets hold; what a macro expands to carries the
place of its use. `#pragma unroll` lines stay. Includes are reported to a callback and never pasted in.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Iterable
from dataclasses import field
from pathlib import Path

from kir.base.dataclass import dataclass
from kir.base.diagnostic import Origin, error

from .preprocessor_conditions import Arithmetic

MAX_TEXT = 4_000_000
"""Characters that the expansions of one file may come to: a macro that doubles itself is refused, not followed."""
MAX_DEPTH = 200
_LEXEME = re.compile(
    r'R"(?P<raw>[^(\s\\]{0,16})\(.*?\)(?P=raw)"|//(?:[^\n\\]|\\.|\\\n)*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', re.DOTALL
)
_DIRECTIVE = re.compile(r"^[ \t]*#[ \t]*(\w*)((?:\\\r?\n|[^\n])*)", re.MULTILINE)
_TOKEN = re.compile(r'[^\W\d]\w*|\.?\d(?:[eEpP][+-]|[\w.\'])*|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'|\s+|##|<<|>>|&&|\|\||[<>=!]=|.', re.DOTALL)


@dataclass(frozen=True)
class Macro:
    """`#define name body`, with parameters when it is function-like (the last takes the rest when `variadic`)."""

    name: str
    params: tuple[str, ...] | None
    body: tuple[str, ...]
    variadic: bool = False


@dataclass
class Mapped:
    """Preprocessed text. `origin` gives the place in the source of a span of it."""

    file: str
    source: str
    text: str
    starts: list[int] = field(default_factory=list)
    places: list[tuple[int, bool]] = field(default_factory=list)
    pragmas_once: bool = False

    def offset(self, at: int) -> int:
        """The offset in the source of an offset in the text; of a macro's expansion, where the macro is used."""
        k = bisect_right(self.starts, at) - 1
        if k < 0:
            return at
        place, expanded = self.places[k]
        return place if expanded else place + at - self.starts[k]

    def origin(self, start: int, end: int) -> Origin:
        """The span in the source of `text[start:end]`."""
        first = self.offset(start)
        return Origin.of(self.file, self.source, first, max(first + 1, self.offset(max(start, end - 1)) + 1))


Include = Callable[[str, bool, Origin], None]
"""Called with the name, whether it stands in quotes, and the place, of each include that is reached."""


class Preprocessor:
    """Macros of one translation unit; `run` is called for each of its files in the order of inclusion."""

    def __init__(self, predefined: dict[str, str]) -> None:
        self.macros: dict[str, Macro] = {k: Macro(k, None, tuple(_TOKEN.findall(v))) for k, v in predefined.items()}
        self.known_headers: Callable[[str, bool], bool] = lambda name, quoted: False

    def predefine(self, macros: Iterable[tuple[str, str]]) -> None:
        """Macros that a build defines, which stand for those of the same names that were there."""
        self.macros |= {k: Macro(k, None, tuple(_TOKEN.findall(v))) for k, v in macros}

    def run(self, file: str, source: str, include: Include, stopped: Callable[[str, Origin], None] | None = None) -> Mapped:
        """Preprocess a file; `stopped` is told of an `#error` that is reached. Raises KirError KIR-F203 (a conditional without end, or one that
        cannot be evaluated), KIR-F204 (expansions without end) and KIR-F205 (`#error` reached, and nobody to tell)."""
        if len(source) > MAX_TEXT:
            raise error("KIR-F211", f"{Path(file).name} has {len(source):,} characters", origin=Origin(file, 1, 1, 1, 2),
                        needs=f"at most {MAX_TEXT:,}: the kernel in a file with what it needs")
        out = Mapped(file, source, "")
        blank = _without_comments(source)
        pieces: list[str] = []
        size = 0

        def put(text: str, place: int, expanded: bool) -> None:
            nonlocal size
            if text:
                out.starts.append(size)
                out.places.append((place, expanded))
                pieces.append(text)
                size += len(text)
                if size > MAX_TEXT:
                    raise error("KIR-F204", "the macros of this file expand without end", origin=Origin.of(file, source, place, place + 1))

        active: list[tuple[bool, bool, bool]] = []
        """(this branch is read, a branch was read, the whole conditional is read), of each open conditional."""
        at = 0
        opened: list[int] = []
        for m in _DIRECTIVE.finditer(blank):
            reading = all(a[0] for a in active)
            if reading:
                self._expand_into(blank, at, m.start(), put, file, source)
            else:
                put(_blanks(blank[at : m.start()]), at, False)
            at = m.end()
            word, rest = m[1], m[2].replace("\\\r\n", " ").replace("\\\n", " ")
            where = Origin.of(file, source, m.start() + len(m[0]) - len(m[0].lstrip()), m.end())
            if word == "pragma" and reading and rest.split()[:1] == ["unroll"]:
                how = self._text(rest.split(None, 1)[1] if len(rest.split(None, 1)) > 1 else "", where).strip()
                before = next((x for x in (p.rstrip() for p in reversed(pieces)) if x), "")
                if before.endswith(")"):  # the whole body of a loop or branch: an attribute may stand there, a line of its own may not
                    inner = how[1:-1] if how.startswith("(") and how.endswith(")") else how
                    put(f"[[unroll({inner})]]" if how else "[[unroll]]", m.start(), True)
                else:
                    put("#pragma unroll " + how, m.start(), True)
                continue
            put(_blanks(m[0]), m.start(), False)
            match word:
                case "if" | "ifdef" | "ifndef":
                    taken = reading and self._holds(word, rest, where)
                    active.append((taken, taken, reading))
                    opened.append(m.start())
                case "elif" | "else" | "elifdef" | "elifndef":
                    if not active:
                        raise error("KIR-F203", f"#{word} without #if", origin=where)
                    _, done, outer = active.pop()
                    kind = {"elif": "if", "elifdef": "ifdef", "elifndef": "ifndef"}.get(word)
                    taken = outer and not done and (kind is None or self._holds(kind, rest, where))
                    active.append((taken, done or taken, outer))
                case "endif":
                    if not active:
                        raise error("KIR-F203", "#endif without #if", origin=where)
                    active.pop()
                    opened.pop()
                case _ if not reading:
                    pass
                case "define":
                    self._define(rest)
                case "undef":
                    self.macros.pop(rest.strip(), None)
                case "include":
                    name = rest.strip() if rest.strip()[:1] in ('"', "<") else self._text(rest, where).strip()
                    if len(name) > 2:
                        include(name[1:-1], name[0] == '"', where)
                case "pragma" if rest.split()[:1] == ["once"]:
                    out.pragmas_once = True
                case "error":
                    if stopped is None:
                        raise error("KIR-F205", f"#error{rest}", origin=where, needs="another target or other macros")
                    stopped(rest.strip(), where)
                case _:
                    pass
        if active:
            raise error("KIR-F203", "this conditional has no #endif", origin=Origin.of(file, source, opened[-1], opened[-1] + 1))
        self._expand_into(blank, at, len(blank), put, file, source)
        out.text = "".join(pieces)
        return out

    # -------------------------------------------------------------------------------------------------------------- directives
    def _define(self, rest: str) -> None:
        m = re.match(r"\s*([^\W\d]\w*)(\([^)]*\))?(.*)", rest, re.DOTALL)
        if m is None:
            return
        params: tuple[str, ...] | None = None
        variadic = False
        if m[2] is not None:
            names = [x.strip() for x in m[2][1:-1].split(",") if x.strip()]
            if names and names[-1].endswith("..."):
                variadic, names[-1] = True, names[-1][:-3].strip() or "__VA_ARGS__"
            params = tuple(names)
        self.macros[m[1]] = Macro(m[1], params, tuple(_TOKEN.findall(m[3].strip())), variadic)

    def _holds(self, kind: str, rest: str, where: Origin) -> bool:
        if kind != "if":
            return (rest.split()[:1] or [""])[0] in self.macros if kind == "ifdef" else (rest.split()[:1] or [""])[0] not in self.macros

        def asked(m: re.Match[str]) -> str:
            return "1" if (m[1] or m[2]) in self.macros else "0"

        text = re.sub(r"\bdefined\s*(?:\(\s*(\w+)\s*\)|(\w+))", asked, self._with_questions(rest))
        text = re.sub(r"\b__has_include\s*\(\s*([<\"])([^>\"]*)[>\"]\s*\)", lambda m: "1" if self.known_headers(m[2], m[1] == '"') else "0", text)
        tokens = [t for t in _TOKEN.findall(self._text(text, where)) if not t.isspace()]
        try:
            return bool(Arithmetic(tokens).value())
        except (ValueError, ZeroDivisionError, IndexError, RecursionError) as bad:
            raise error("KIR-F203", f"this condition cannot be evaluated: {' '.join(tokens)[:80]}", origin=where) from bad

    def _with_questions(self, rest: str) -> str:
        """A condition with macros whose text asks `defined` in their place: what they ask about is a name, and stays one."""
        for _ in range(MAX_DEPTH):
            asking = [m for x in re.findall(r"(?<!\w)(?!defined\b)[^\W\d]\w*", re.sub(r"\bdefined\s*\(?\s*\w+", "", rest))
                      if (m := self.macros.get(x)) is not None and m.params is None and "defined" in m.body]
            if not asking or len(rest) > MAX_TEXT // 4:
                break
            rest = re.sub(rf"\b{asking[0].name}\b", "".join(asking[0].body).replace("\\", ""), rest)
        return rest

    # --------------------------------------------------------------------------------------------------------------- expansion
    def _text(self, text: str, where: Origin) -> str:
        """A directive's text, macros in it replaced."""
        try:
            return "".join(self._expanded(_TOKEN.findall(text), frozenset(), 0))
        except RecursionError:
            raise error("KIR-F204", "a macro of this directive expands without end", origin=where) from None

    def _expand_into(self, blank: str, start: int, stop: int, put: Callable[[str, int, bool], None], file: str, source: str) -> None:
        """The text of a stretch without directives, macros in it replaced."""
        at = start
        macros = self.macros
        for m in _scan(blank, start, stop):
            name = m[0]
            if m.start() < at or name not in macros:
                continue
            macro = macros[name]
            end = m.end()
            args: list[list[str]] | None = None
            if macro.params is not None:
                found = _arguments_at(blank, end, stop)
                if found is None:
                    continue
                args, end = found
            put(blank[at : m.start()], at, False)
            try:
                made = "".join(self._replaced(macro, args, frozenset(), 0))
            except RecursionError:
                raise error("KIR-F204", f"the macro '{name}' expands without end", origin=Origin.of(file, source, m.start(), end)) from None
            if len(made) > MAX_TEXT:
                raise error("KIR-F204", f"the macro '{name}' expands without end", origin=Origin.of(file, source, m.start(), end))
            made = re.sub(r"_Pragma\s*\(\s*\"unroll([^\"]*)\"\s*\)", r"\n#pragma unroll\1\n", made)
            put(made + " ", m.start(), True)
            at = end
        put(blank[at:stop], at, False)

    def _replaced(self, macro: Macro, args: list[list[str]] | None, hidden: frozenset[str], depth: int) -> list[str]:
        if depth > MAX_DEPTH:
            raise RecursionError
        body = list(macro.body)
        if macro.params is not None:
            body = self._with_arguments(macro, args or [], hidden, depth)
        else:
            body = _pasted(body)
        return self._expanded(body, hidden | {macro.name}, depth + 1)

    def _with_arguments(self, macro: Macro, args: list[list[str]], hidden: frozenset[str], depth: int) -> list[str]:
        params = macro.params or ()
        if macro.variadic and len(args) >= len(params):
            rest: list[str] = []
            for k, a in enumerate(args[len(params) - 1 :]):
                rest += [",", *a] if k else a
            args = [*args[: len(params) - 1], rest]
        given = dict(zip(params, [*args, *([[]] * len(params))], strict=False))
        body, out = list(macro.body), []
        for k, token in enumerate(body):
            if token == "#" and k + 1 < len(body) and body[k + 1] in given:
                out.append('"' + " ".join("".join(given[body[k + 1]]).split()).replace("\\", "\\\\").replace('"', '\\"') + '"')
                body[k + 1] = ""
            elif token in given:
                pasting = _neighbor(body, k, -1) == "##" or _neighbor(body, k, 1) == "##"
                out += given[token] if pasting else self._expanded(given[token], hidden, depth + 1)
            else:
                out.append(token)
        return _pasted(out)

    def _expanded(self, tokens: list[str], hidden: frozenset[str], depth: int) -> list[str]:
        if depth > MAX_DEPTH:
            raise RecursionError
        out: list[str] = []
        size = k = 0
        while k < len(tokens):
            token = tokens[k]
            macro = self.macros.get(token) if token not in hidden else None
            k += 1
            if macro is None:
                out.append(token)
                continue
            args: list[list[str]] | None = None
            if macro.params is not None:
                found = _arguments(tokens, k)
                if found is None:
                    out.append(token)
                    continue
                args, k = found
            made = self._replaced(macro, args, hidden, depth)
            size += len(made)
            if size > MAX_TEXT // 4:
                raise RecursionError
            out += made
        return out


def _scan(text: str, start: int, stop: int) -> list[re.Match[str]]:
    """Words outside strings and characters."""
    out = []
    for m in _SCAN.finditer(text, start, stop):
        if m[1] is not None:
            out.append(m)
    return out


_SCAN = re.compile(r'([^\W\d]\w*)|\.?\d(?:[eEpP][+-]|[\w.\'])*|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'')


def _blanks(text: str) -> str:
    return re.sub(r"[^\n]", " ", text)


def _without_comments(source: str) -> str:
    """The text with blanks for comments. One that begins in a directive and goes over lines does not end the directive: each of its lines is continued."""
    def blanked(m: re.Match[str]) -> str:
        if not m[0].startswith("/"):
            return m[0]
        blank = _blanks(m[0])
        return blank.replace(" \n", "\\\n") if "\n" in blank and _in_directive(source, m.start()) else blank
    return _LEXEME.sub(blanked, source)


def _in_directive(source: str, at: int) -> bool:
    """Whether a place is on a line, or on one that continues a line, that begins with `#`."""
    start = source.rfind("\n", 0, at) + 1
    while start and source[max(0, start - 3):start].endswith(("\\\n", "\\\r\n")):
        start = source.rfind("\n", 0, start - 1) + 1
    return source[start:at].lstrip().startswith("#")


def _neighbor(tokens: list[str], k: int, step: int) -> str:
    k += step
    while 0 <= k < len(tokens) and (tokens[k].isspace() or not tokens[k]):
        k += step
    return tokens[k] if 0 <= k < len(tokens) else ""


def _pasted(tokens: list[str]) -> list[str]:
    """`a ## b` as one token."""
    if "##" not in tokens:
        return tokens
    out: list[str] = []
    joining = False
    for t in tokens:
        if t == "##":
            while out and out[-1].isspace():
                out.pop()
            joining = True
        elif joining and t.isspace():
            continue
        elif joining and out:
            out[-1] += t
            joining = False
        else:
            out.append(t)
            joining = False
    return out


def _arguments(tokens: list[str], k: int) -> tuple[list[list[str]], int] | None:
    """The arguments of a function-like macro whose name has just been read, and where its call ends."""
    while k < len(tokens) and tokens[k].isspace():
        k += 1
    if k >= len(tokens) or tokens[k] != "(":
        return None
    depth, k = 1, k + 1
    current: list[str] = []
    args = [current]
    while k < len(tokens):
        t = tokens[k]
        k += 1
        if t in "([{" and t:
            depth += 1
        elif t in ")]}" and t:
            depth -= 1
            if depth == 0:
                return ([_stripped(a) for a in args] if len(args) > 1 or _stripped(args[0]) else []), k
        if t == "," and depth == 1:
            current = []
            args.append(current)
        else:
            current.append(t)
    return None


def _stripped(tokens: list[str]) -> list[str]:
    lo, hi = 0, len(tokens)
    while lo < hi and tokens[lo].isspace():
        lo += 1
    while hi > lo and tokens[hi - 1].isspace():
        hi -= 1
    return tokens[lo:hi]


def _arguments_at(text: str, at: int, stop: int) -> tuple[list[list[str]], int] | None:
    """`_arguments`, in text."""
    m = re.compile(r"\s*\(").match(text, at, stop)
    if m is None:
        return None
    depth, k = 0, m.end() - 1
    for t in _TOKEN.finditer(text, k, stop):
        if t[0] in ("(", "[", "{"):
            depth += 1
        elif t[0] in (")", "]", "}"):
            depth -= 1
            if depth == 0:
                found = _arguments(_TOKEN.findall(text[k : t.end()]), 0)
                return None if found is None else (found[0], t.end())
    return None
