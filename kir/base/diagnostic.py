"""Diagnostics: the one family of errors, how they are shown, and where they are explained.

Every refusal in KIR is a :class:`KirError` that carries one or more :class:`Diagnostic` values. A diagnostic has an id
(``KIR-T001``: the letter names the area, see :data:`AREAS`), a sentence, and, where there is one, a place in a source
file. What an id means at length is data: ``grammars/diagnostics/<area>.toml``, read on first use.
"""

from __future__ import annotations

import difflib
import re
import unicodedata
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, fields, replace
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, Literal, TypedDict, Unpack

from kir.base.dataclass import dataclass

Severity = Literal["error", "warning", "note"]

AREAS: Mapping[str, str] = {
    "T": "text and parser",
    "V": "verifier",
    "A": "anchor",
    "L": "layout",
    "I": "interpreter finding",
    "P": "precondition of a pass",
    "R": "rewrite and pipeline",
    "F": "frontend",
    "B": "backend",
    "G": "gate",
    "S": "store, lineage and library",
    "C": "command line",
    "H": "hole and carrier",
    "U": "tuning",
    "E": "effects and forecasts",
    "X": "plugin",
    "Y": "checked for every size",
}
"""What the letter of an id says."""

ID_PATTERN = re.compile(rf"KIR-[{''.join(AREAS)}]\d{{3}}")
"""The form of an id, for ``fullmatch``."""

MOST_COLUMNS = 160
"""Characters of a line that an excerpt shows; of a longer one, those around the span."""

TAB_WIDTH = 4
"""Columns a tab takes in a printed excerpt (positions in an :class:`Origin` count a tab as one character)."""


@dataclass(frozen=True)
class Origin:
    """A span of a source file. Lines and columns are 1-based and count characters; ``end_column`` is exclusive. ``inner`` is the place of its own
    of what was read in place there: of a statement in the body of a device function or lambda, where the span is that of the call."""

    file: str
    line: int
    column: int
    end_line: int
    end_column: int
    inner: Origin | None = None

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}"

    @property
    def own(self) -> Origin:
        """The place where the thing itself stands."""
        return self if self.inner is None else self.inner

    @property
    def call(self) -> Origin | None:
        """The statement that calls what holds the thing, where that stands elsewhere."""
        at = self.inner
        if at is None or (at.file == self.file and (self.line, self.column) <= (at.line, at.column) <= (self.end_line, self.end_column)):
            return None
        return replace(self, inner=None)

    def to_json(self) -> dict[str, Any]:
        """A JSON object; ``inner`` only where there is one."""
        found = asdict(self)
        if self.inner is None:
            del found["inner"]
        else:
            found["inner"] = self.inner.to_json()
        return found

    @classmethod
    def of(cls, file: str, source: str, start: int, end: int) -> Origin:
        """The span of ``source[start:end]``, both given as character offsets into the whole text of ``file``."""
        line, column = _line_and_column(source, start)
        end_line, end_column = _line_and_column(source, max(start, end))
        return cls(file, line, column, end_line, end_column)


class Fields(TypedDict, total=False):
    """What may be said of a diagnostic beside its id and sentence: the keywords of :func:`error` and :func:`usage`."""

    origin: Origin | None
    anchor: str
    subject: str
    witness: tuple[str, ...]
    needs: str
    attempt: str
    verdict: str
    notes: tuple[str, ...]
    severity: Severity
    label: str


@dataclass(frozen=True)
class Diagnostic:
    """One finding, as data.

    ``anchor`` is the place in the IR (``main/k_loop/body.3``), ``subject`` what was being done (a pass with its
    parameters), ``witness`` the facts that show the problem, ``needs`` what would make it right, ``attempt`` a step to
    try, ``verdict`` how it was decided, ``label`` the words beside the caret.

    Raises ``ValueError`` for an id of another form: ids are written by programmers.
    """

    id: str
    message: str
    origin: Origin | None = None
    anchor: str = ""
    subject: str = ""
    witness: tuple[str, ...] = ()
    needs: str = ""
    attempt: str = ""
    verdict: str = ""
    notes: tuple[str, ...] = ()
    severity: Severity = "error"
    label: str = ""

    def __post_init__(self) -> None:
        if not ID_PATTERN.fullmatch(self.id):
            raise ValueError(f"{self.id!r} is not a diagnostic id: KIR-, one letter of {''.join(AREAS)}, three digits")

    def __str__(self) -> str:
        return self.render()

    def render(self, source: str | None = None, color: bool = False) -> str:
        """The diagnostic as a terminal shows it, without a trailing newline.

        ``source`` is the text of the whole file that ``origin`` names; when it is absent the file is read if it can be.
        ``color`` adds ANSI colors.
        """
        paint = _paint if color else _plain
        tone = {"error": "1;31", "warning": "1;33", "note": "1;36"}[self.severity]
        subject = f"{self.subject}: " if self.subject else ""
        lines = [f"{paint(f'{self.severity}[{self.id}]', tone)} {paint(subject + self.message, '1')}"]
        gutter = 2
        if self.origin is not None:
            gutter = max(2, len(str(self.origin.line)))
            place = f"{' ' * gutter}--> {from_here(self.origin)}"
            lines.append(f"{place:<45} ({self.anchor})" if self.anchor else place)
            lines += _excerpt(self.origin, self.label, source, gutter, paint, tone)
        elif self.anchor:
            lines.append(f"{' ' * gutter}--> {self.anchor}")
        trailer = [("witness:", text) for text in self.witness]
        trailer += [("needs:", self.needs), ("try:", self.attempt), ("verdict:", self.verdict)]
        trailer += [("note:", text) for text in self.notes]
        for head, text in trailer:
            if text:
                hang = "\n" + " " * (gutter + 12)
                lines.append(f"{' ' * (gutter + 1)}= {paint(f'{head:<8}', '1')} {text.replace(chr(10), hang)}")
        more = f"more: kir explain {self.id}"
        if self.verdict and not self.notes:
            lines[-1] = f"{lines[-1]:<45} {more}"
        else:
            lines.append(f"{' ' * (gutter + 1)}= {more}")
        return "\n".join(lines)

    def to_json(self) -> dict[str, Any]:
        """A JSON object with every field that is not at its default; :meth:`from_json` is its inverse."""
        value: dict[str, Any] = {"id": self.id, "message": self.message, "severity": self.severity}
        if self.origin is not None:
            value["origin"] = self.origin.to_json()
        for name in ("anchor", "subject", "needs", "attempt", "verdict", "label"):
            if text := getattr(self, name):
                value[name] = text
        for name in ("witness", "notes"):
            if items := getattr(self, name):
                value[name] = list(items)
        return value

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Diagnostic:
        """Rebuild a diagnostic; raises ``ValueError`` for a field it does not know."""
        known = {field.name for field in fields(cls)}
        if unknown := sorted(set(value) - known):
            raise ValueError(f"a diagnostic has no field {unknown[0]!r}{_suffix(did_you_mean(unknown[0], known))}")
        data = dict(value)
        if data.get("origin") is not None:
            data["origin"] = _origin(data["origin"])
        for name in ("witness", "notes"):
            data[name] = tuple(data.get(name, ()))
        return cls(**data)


class KirError(Exception):
    """A refusal or failure: at least one diagnostic. The command line exits with 1."""

    def __init__(self, *diagnostics: Diagnostic) -> None:
        if not diagnostics:
            raise ValueError("a KirError carries at least one diagnostic")
        super().__init__(*diagnostics)
        self.diagnostics: tuple[Diagnostic, ...] = diagnostics

    def __str__(self) -> str:
        return "\n".join(diagnostic.render() for diagnostic in self.diagnostics)


class UsageError(KirError):
    """The command was given wrongly (an unknown option, pass or file). The command line exits with 2."""


def error(id: str, message: str, **more: Unpack[Fields]) -> KirError:
    """A :class:`KirError` with one diagnostic, to be raised by the caller."""
    return KirError(Diagnostic(id, message, **more))


def usage(id: str, message: str, **more: Unpack[Fields]) -> UsageError:
    """A :class:`UsageError` with one diagnostic, to be raised by the caller."""
    return UsageError(Diagnostic(id, message, **more))


def did_you_mean(name: str, candidates: Iterable[str]) -> str:
    """``"did you mean 'x' or 'y'?"`` with up to three near candidates, nearest first, or ``""`` when none is near."""
    pool = sorted(set(candidates))
    folded: dict[str, list[str]] = {}
    for candidate in pool:
        folded.setdefault(_fold(candidate), []).append(candidate)
    if exact := folded.get(_fold(name)):
        return f"did you mean '{exact[0]}'?"
    near = [each for key in difflib.get_close_matches(_fold(name), list(folded), n=3, cutoff=0.6) for each in folded[key]]
    near += [each for each in pool if len(name) >= 3 and each not in near and _fold(each).startswith(_fold(name))]
    if not near:
        return ""
    quoted = [f"'{each}'" for each in near[:3]]
    return f"did you mean {' or '.join([', '.join(quoted[:-1]), quoted[-1]] if len(quoted) > 1 else quoted)}?"


@dataclass(frozen=True)
class Explanation:
    """What an id means: ``title`` in a few words, ``explain`` why it is refused, ``mend`` what to do about it."""

    id: str
    title: str
    explain: str
    mend: str


@cache
def explanations() -> Mapping[str, Explanation]:
    """Every row of ``grammars/diagnostics/*.toml`` by id.

    Raises :class:`KirError` (KIR-X001) for a row that is declared twice, has a wrong id, or lacks one of its fields.
    """
    import tomllib
    from importlib import resources

    rows: dict[str, Explanation] = {}
    folder = resources.files("kir.grammars") / "diagnostics"
    for file in sorted(folder.iterdir(), key=lambda each: each.name):
        if not file.name.endswith(".toml"):
            continue
        for id_, row in tomllib.loads(file.read_text(encoding="utf-8")).items():
            wrong = ""
            if not ID_PATTERN.fullmatch(id_):
                wrong = "is not a diagnostic id"
            elif id_ in rows:
                wrong = "is declared in another file too"
            elif not isinstance(row, dict) or set(row) != {"title", "explain", "mend"}:
                wrong = "must have exactly title, explain and mend"
            if wrong:
                raise error("KIR-X001", f"{file.name}: [{id_}] {wrong}", needs="one row for each id, with title, explain and mend")
            rows[id_] = Explanation(id_, *(str(row[key]).strip() for key in ("title", "explain", "mend")))
    return rows


def explanation(id: str) -> Explanation | None:
    """The row of ``id``, or None (preconditions, ``KIR-Pnnn``, are declared by their passes instead)."""
    return explanations().get(id)


def _fold(name: str) -> str:
    return name.casefold().replace("_", "-")


def _suffix(hint: str) -> str:
    return f"; {hint}" if hint else ""


def _origin(given: Mapping[str, Any]) -> Origin:
    """The inverse of :meth:`Origin.to_json`."""
    inner = given.get("inner")
    return Origin(**{**given, "inner": None if inner is None else _origin(inner)})


def _line_and_column(source: str, offset: int) -> tuple[int, int]:
    offset = min(offset, len(source))
    starts = _line_starts(source)
    line = bisect_right(starts, offset)
    return line, offset - starts[line - 1] + 1


@lru_cache(maxsize=8)
def _line_starts(source: str) -> tuple[int, ...]:
    """Where the lines of a text begin: counted once for all the places in it."""
    return (0, *(m.end() for m in re.finditer("\n", source)))


def _plain(text: str, code: str) -> str:
    return text


def _paint(text: str, code: str) -> str:
    return f"\x1b[{code}m{text}\x1b[0m"


def _width(text: str) -> int:
    """Terminal columns of ``text``: wide characters take two, combining ones none."""
    return sum(0 if unicodedata.combining(char) else 2 if unicodedata.east_asian_width(char) in "WF" else 1 for char in text)


def _shown(text: str) -> str:
    """``text`` with tabs widened and control characters made visible, so that carets stand where they should."""
    return "".join(" " * TAB_WIDTH if char == "\t" else char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in text)


def from_here(origin: Origin) -> str:
    """A place as a user would type its file here: relative to the current folder where it lies below it."""
    path = Path(origin.file)
    try:
        if path.is_absolute() and path.is_relative_to(here := Path.cwd()):
            return str(replace(origin, file=str(path.relative_to(here))))
    except OSError:  # the current folder is gone
        pass
    return str(origin)


def _window(row: str, start: int, stop: int) -> tuple[str, int, int]:
    """The part of a very long line around its span, and the span there; dots where the line goes on."""
    first = max(0, min(start - MOST_COLUMNS // 3, len(row) - MOST_COLUMNS))
    last = first + MOST_COLUMNS
    head, tail = ".." if first else "", ".." if last < len(row) else ""
    shift = len(head) - first
    return f"{head}{row[first:last]}{tail}", start + shift, min(stop, last) + shift


def _excerpt(origin: Origin, label: str, source: str | None, gutter: int, paint: Callable[[str, str], str], tone: str) -> list[str]:
    """The source line of ``origin`` with its span underlined, or nothing when the text is not to be had."""
    if source is None:
        path = Path(origin.file)
        try:
            source = path.read_text(encoding="utf-8", errors="replace") if path.is_file() else None
        except OSError:
            return []
    if source is None:
        return []
    rows = source.split("\n")
    if not 1 <= origin.line <= len(rows):
        return []
    row = rows[origin.line - 1].rstrip("\r")
    start = min(max(origin.column - 1, 0), len(row))
    stop = min(origin.end_column - 1, len(row)) if origin.end_line == origin.line else len(row.rstrip())
    if len(row) > MOST_COLUMNS:
        row, start, stop = _window(row, start, stop)
    before, span = _shown(row[:start]), _shown(row[start : max(start, stop)])
    carets = "^" * max(1, _width(span)) + ("..." if origin.end_line > origin.line else "")
    under = f"{' ' * _width(before)}{paint(carets, tone)}{' ' + label if label else ''}"
    bar = f"{' ' * gutter} |"
    return [bar, f"{origin.line:>{gutter}} | {_shown(row)}", f"{bar} {under}"]
