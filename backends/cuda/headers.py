"""The toolkit's headers, read once for all programs that include the same ones, and cut down to what each program names.

Of the 0.4 s that nvcc takes for a kernel, headers take all but a tenth: forty thousand lines of the runtime, the C++ library and half precision, of which
a kernel names a dozen functions. Here they are preprocessed once, by the command that nvcc says it would run, and parted into declarations. A program
is compiled by nvcc's own compiler with nvcc's own options, behind those declarations that it names, those that these name, and so on. All that declare one
name are kept together, so that the same overloads and specializations are chosen from; operators, which nobody names, go with the types that they are of.
Whenever this way says anything, if only a warning, the program is compiled by nvcc as it stands.
"""
from __future__ import annotations

import re
import shlex
import threading
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from kir.base.dataclass import dataclass
from kir.hardware.machine import Toolkit

from .._process import run

OPTIONS = ("-std=c++17", "-O3")
SECONDS = 240.0
_LATER = 2
"""From which program on with the same headers these are read here: for a single one that is no gain."""
_INCLUDE = re.compile(r'\s*#\s*include\s*[<"][^>"]*[>"]\s*')
_TOKEN = re.compile(r'^[ \t]*#[^\n]*|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'|[A-Za-z_]\w*|::|[{}();<>:]', re.MULTILINE)
_NAME = re.compile(r"[A-Za-z_]\w*")
_SETTING = re.compile(r"([A-Z_]+)=(.*)")
_NO_PARAMETERS = frozenset({"__attribute__", "__attribute", "__declspec__", "__declspec", "alignas", "decltype", "__decltype", "noexcept", "asm", "__asm__",
                            "__asm", "throw", "typeof", "__typeof__", "__typeof", "explicit", "sizeof", "alignof", "__alignof__"})
"""Words before a parenthesis that holds no parameters."""
_CLASSES = frozenset({"struct", "class", "union", "enum"})
_TYPED = _CLASSES | {"typedef", "using"}
"""Words of declarations of types."""
_KEYWORDS = frozenset({"void", "bool", "char", "short", "int", "long", "float", "double", "signed", "unsigned", "wchar_t", "auto", "const",
                       "volatile", "extern", "static", "inline", "constexpr", "return", "mutable", "typedef", "using", "template", "typename",
                       "class", "struct", "union", "enum", "namespace", "operator", "__attribute__", "__inline__", "__inline", "__extension__",
                       "__restrict", "noexcept", "decltype", "sizeof", "public", "private", "protected", "friend", "virtual", "if", "else", "for",
                       "while", "do", "switch", "case", "true", "false", "this", "nullptr", "delete", "default", "new", "throw", "try", "catch",
                       "static_cast", "reinterpret_cast", "const_cast", "typeid"})
_OWN = frozenset({"__cplusplus", "__STDC__", "__STDC_VERSION__", "__STDC_HOSTED__", "__FILE__", "__LINE__", "__DATE__", "__TIME__", "__COUNTER__"})
"""Macros that every compiler defines by itself."""


@dataclass(frozen=True)
class Part:
    """A declaration of the headers, or what stands around some. `declares` are the names with which it is kept; None: it always is."""

    text: str
    declares: frozenset[str] | None = None
    named: bool = True
    """Whether it is kept for what it declares, and not for where it stands."""


class Headers:
    """What some headers declare and define, and how nvcc compiles behind them for an architecture: its compiler's words, and its environment."""

    def __init__(self, parts: Sequence[Part], macros: Mapping[str, str], command: tuple[str, ...], environment: Mapping[str, str]) -> None:
        self.parts, self.macros, self.command, self.environment = parts, macros, command, environment
        self.declaring: dict[str, list[int]] = defaultdict(list)
        for i, part in enumerate(parts):
            for name in part.declares or ():
                self.declaring[name].append(i)
        self.always = {name for part in parts if part.named and part.declares is None for name in _names(part.text)}

    def behind(self, text: str, line: int) -> str:
        """A text, which begins with that line of its file, behind what it names."""
        needed = _names(text) | self.always
        waiting, kept, defined = [*needed], set[int](), dict[str, str]()
        while waiting:
            name = waiting.pop()
            fresh: set[str] = set()
            if name in self.macros:
                defined[name] = self.macros[name]
                fresh |= _names(self.macros[name])
            for i in self.declaring.get(name, ()):
                if i not in kept:
                    kept.add(i)
                    fresh |= _names(self.parts[i].text)
            waiting += fresh - needed
            needed |= fresh
        shown = (part.text for i, part in enumerate(self.parts) if part.declares is None or i in kept)
        return "\n".join(['# 1 "headers" 1 3', *shown, *defined.values(), f'# {line} "emitted.cu" 2', text])


def _names(text: str) -> set[str]:
    return set(_NAME.findall(text)) - _KEYWORDS


# ------------------------------------------------------------------------------------------------------------------- declarations
class _Declaration:
    """A declaration while it is read: its words outside of all brackets, names outside of braces, the parameters of its template, and the words before its own
    parameters, of which one may be an attribute that nobody here knows. Words after the colon of a class are of its bases."""

    def __init__(self, start: int) -> None:
        self.start = start
        self.words: list[str] = []
        self.outside: set[str] = set()
        self.template: set[str] = set()
        self.function, self.functions = "", set[str]()
        self.linkage = self.based = self.unclear = False
        self.angles = self.within = 0

    def declares(self) -> frozenset[str]:
        """The names that it declares, or more than these where that is not clear."""
        words = self.words
        if "operator" in words or ("typedef" in words and self.function):
            return frozenset(self.outside - self.template - _KEYWORDS)
        if self.function and _CLASSES.isdisjoint(words):
            return frozenset(self.outside - _KEYWORDS) if self.unclear or self.function in _KEYWORDS else frozenset(self.functions - _KEYWORDS)
        if "enum" in words or self.function:
            return frozenset(self.outside - _KEYWORDS)
        return frozenset(words) - _KEYWORDS - self.template

    @property
    def opens(self) -> bool:
        """Whether a brace here opens a namespace, or what has another language's linkage."""
        return self.words[:1] == ["namespace"] or self.words[:2] == ["inline", "namespace"] or (self.linkage and self.words == ["extern"])


def parted(text: str) -> list[Part]:
    """The declarations of preprocessed text in their order. Those of operators are kept with the types that they are of."""
    found = list(_declarations(text))
    spaces = {name for shown, one in found if one is None and shown.endswith("{") for name in _NAME.findall(shown)} - {"extern"}  # no declaration is of these
    classes = {name for _, one in found if one is not None and not _TYPED.isdisjoint(one.words) for name in one.declares()}
    parts = list[Part]()
    for shown, one in found:
        if one is None or one.words[:2] == ["using", "namespace"]:
            parts.append(Part(shown, named=False))
        elif "operator" in one.words:
            parts.append(Part(shown, one.declares() - spaces & classes or None))
        elif one.words[0] not in ("static_assert", "_Static_assert"):
            parts.append(Part(shown, one.declares() - spaces or None))
    return parts


def _declarations(text: str) -> Iterator[tuple[str, _Declaration | None]]:
    """The text of each declaration with what was read of it: None of what opens or ends a namespace or a linkage, and of directives."""
    one, stack = _Declaration(0), list[str]()
    previous, last = "", 0
    for m in _TOKEN.finditer(text):
        token, here, end = m.group(), m.start(), m.end()
        ended = False
        match token[0]:
            case "#" | " " | "\t":
                if not one.words and not stack:
                    yield token.strip(), None
                    one = _Declaration(end)
                continue
            case '"' | "'":
                one.linkage = one.linkage or one.words == ["extern"]
            case "<" | ">" if not stack:
                if token == "<" and (one.angles or previous == "template"):
                    one.angles += 1
                elif token == ">" and one.angles:
                    one.angles -= 1
                elif not one.function:
                    one.within += 1 if token == "<" else -1
            case ":" if token == ":" and not stack and not one.function and not _CLASSES.isdisjoint(one.words):
                one.based = True
            case "(":
                beside = not text[last:here].strip() and previous
                if not stack and not one.angles and not one.function and ("operator" in one.words or (beside and previous not in _NO_PARAMETERS)):
                    one.function, one.unclear = previous or "operator", one.within != 0
                if not stack and not one.angles and beside:
                    one.functions.add(previous)
                stack.append("attribute" if beside and previous.startswith("__attribute") else token)
            case "{" if not stack and one.opens:
                yield text[one.start:end].strip(), None
                one = _Declaration(end)
            case "{":
                stack.append(token)
            case ")" | "}":
                if stack:
                    stack.pop()
                    body = token == "}" and not stack and bool(one.function) and _CLASSES.isdisjoint(one.words)
                    ended = body and text[end:end + 80].lstrip()[:1] not in ("{", ",")
                elif token == "}":
                    yield "}", None
                    one = _Declaration(end)
            case ";":
                ended = not stack
            case _ if token[0].isalpha() or token[0] == "_":
                if one.angles and not stack:
                    one.template |= {token} if previous in ("typename", "class") else set()
                elif not stack and not one.based:
                    one.words.append(token)
                if "attribute" not in stack and ("{" not in stack or "enum" in one.words):
                    one.outside.add(token)
        if ended:
            if one.words:
                yield text[one.start:end].strip(), one
            one = _Declaration(end)
        if token[0].isalpha() or token[0] == "_":
            previous, last = token, end
        elif not (one.angles and text[last:here].strip() == "..."):
            previous, last = "", end


# ------------------------------------------------------------------------------------------------------------------------ the way
_LOCK = threading.Lock()
_MET: dict[tuple[str, str, str], int] = {}
_READ: dict[tuple[str, str, str], Headers | None] = {}


def compiled(found: Toolkit, arch: str, folder: Path) -> bool:
    """Write emitted.ptx for emitted.cu of a folder, as nvcc would; False where that is left to nvcc."""
    text = (folder / "emitted.cu").read_text()
    lines = text.split("\n")
    at = max((i for i, line in enumerate(lines) if _INCLUDE.fullmatch(line)), default=-1) + 1
    head = [line.strip() for line in lines[:at] if line.strip() and not line.lstrip().startswith("//")]
    if not head or not all(map(_INCLUDE.fullmatch, head)) or any('"' in line for line in head):
        return False
    key = (str(found.nvcc.path), arch, "\n".join(head))
    with _LOCK:
        _MET[key] = _MET.get(key, 0) + 1
        if _MET[key] < _LATER:
            return False
        if key not in _READ:
            _READ[key] = _read(found, arch, key[2], folder)
        headers = _READ[key]
    if headers is None:
        return False
    (folder / "emitted.ii").write_text(headers.behind("\n".join(lines[at:]), at + 1))
    done = run([word.replace("@FOLDER@", str(folder)) for word in headers.command], folder, SECONDS, dict(headers.environment))
    return done.code == 0 and not done.out.strip() and not done.err.strip() and (folder / "emitted.ptx").exists()


def _read(found: Toolkit, arch: str, head: str, folder: Path) -> Headers | None:
    """Preprocess the headers as nvcc says that it would; None where it says nothing that is understood."""
    (folder / "headers.cu").write_text(head + "\n")
    told = run([found.nvcc.path, "--dryrun", "-ptx", f"-arch={arch}", *OPTIONS, "headers.cu", "-o", "emitted.ptx"], folder, SECONDS).err
    rows = [row.removeprefix("#$ ").strip() for row in told.splitlines() if row.startswith("#$ ")]
    environment = {m[1]: m[2].strip() for row in rows if (m := _SETTING.fullmatch(row))}
    commands = [shlex.split(_filled(row, environment)) for row in rows if not _SETTING.fullmatch(row)]
    first = next((c for c in commands if "-E" in c and "headers.cu" in c and "-o" in c), None)
    second = next((c for c in commands if c and Path(c[0]).name == "cicc" and c[-2:-1] == ["-o"]), None)
    if first is None or second is None or first[first.index("-o") + 1] not in second:
        return None
    before, made = first[:first.index("-o")], first[first.index("-o") + 1]
    plain = run([*before, "-P", "-o", "headers.ii"], folder, SECONDS, _settings(environment))
    macros = run([*before, "-dM", "-o", "headers.macros"], folder, SECONDS, _settings(environment))
    if plain.code or macros.code:
        return None
    second = [{made: "emitted.ii", "headers.cu": "emitted.cu", str(folder / "headers.cu"): "@FOLDER@/emitted.cu"}.get(w, w.replace(str(folder), "@FOLDER@"))
              for w in second]
    defined = {m[1]: row for row in (folder / "headers.macros").read_text().splitlines()
               if (m := re.match(r"#define (\w+)", row)) and m[1] not in _OWN}
    return Headers(parted((folder / "headers.ii").read_text()), defined, tuple(second), _settings(environment))


def _filled(row: str, environment: Mapping[str, str]) -> str:
    for name, value in environment.items():
        row = row.replace(f"${name}", value)
    return row


def _settings(environment: Mapping[str, str]) -> dict[str, str]:
    """What nvcc's parts find in their environment."""
    return {name: value for name, value in environment.items() if name in ("NVVMIR_LIBRARY_DIR", "LD_LIBRARY_PATH", "PATH") and value}


