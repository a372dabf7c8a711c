"""Words that KIR uses, collected from its grammars, tables and code: its own variables, what passes and frontends call things, keywords of the IR's
text, instructions and dtypes, and the vocabulary of the surfaces."""
from __future__ import annotations

import random
import re
from functools import cache
from pathlib import Path

from kir.base.instructions import table
from kir.ir.printer import reserved
from kir.ir.types import DTYPES

ROOT = Path(__file__).parents[2]
MAKING = frozenset({"fresh", "own", "let", "lets", "let_at", "Var", "Axis", "Buffer", "Param", "Meta", "Function", "unlike", "own_words", "spelled", "unused",
                    "reserve", "Store"})
"""Functions whose arguments are names of programs."""
FAMILIES = frozenset({"OWN", "GRID", "EXTENTS", "LAUNCH", "BLOCK", "COMBINES"})
"""Tables of words that a frontend or backend names things with."""
CODE = ("kir", "frontends", "backends", "passes")
LINKED = ("backends", "frontends", "grammars", "passes", "skills")
_NAME = re.compile(r"[^\W\d]\w*")


@cache
def made() -> tuple[str, ...]:
    """Names that KIR makes: texts, and texts with parts worked out, in calls that name something, and in tables that spell a family of names."""
    calls = re.compile(rf"\b(?:{'|'.join(sorted(MAKING))})\(\(?((?:[^()\"]|\([^()]*\))*f?\"[^\"]+\"(?:, f?\"[^\"]+\")*)")
    tables = re.compile(rf"^(?:{'|'.join(sorted(FAMILIES))})\b[^=\n]*= (.*)$", re.MULTILINE)
    out: set[str] = set()
    for text in _texts(*CODE):
        for part in (*calls.findall(text), *tables.findall(text)):
            for literal, word in re.findall(r'(f?)"([^"]+)"', part):
                out |= set(_spellings(word, bool(literal)))
    return tuple(sorted(out))


@cache
def keywords() -> tuple[str, ...]:
    """Words of the IR's text and of pipelines, dtypes, instructions."""
    out = {*reserved(), *DTYPES, *table(), "true", "false", "auto", "ieee", "tf32"}
    for file in (ROOT / "grammars").glob("*.lark"):
        out |= set(re.findall(r'"([^\W\d]\w*)"', file.read_text(encoding="utf-8")))
    return tuple(sorted(x for x in out if _NAME.fullmatch(x)))


@cache
def vocabulary() -> tuple[str, ...]:
    """Identifiers that the code of frontends, backends and passes knows as texts: keywords, built-in functions and library words of the surfaces,
    options, words of templates; and words of texts that list them."""
    out: set[str] = set()
    for text in _texts("frontends", "backends", "passes"):
        out |= set(re.findall(r'"([^\W\d]\w{0,23})"', text))
        for listed in re.findall(r'"""\n([\w\s]+)"""', text):
            out |= {w for w in listed.split() if _NAME.fullmatch(w) and len(w) <= 24}
    return tuple(sorted(out))


def _spellings(word: str, formatted: bool) -> tuple[str, ...]:
    """The names that a text, or one with parts worked out, may stand for."""
    made_ = [re.sub(r"\{[^{}]*\}", filled, word) for filled in ("0", "1", "x")] if formatted else [word]
    return tuple(x for x in dict.fromkeys(made_) if _NAME.fullmatch(x))


@cache
def _texts(*folders: str) -> tuple[str, ...]:
    out = []
    for folder in folders:
        for file in sorted((ROOT / folder).rglob("*.py")):
            inside = file.relative_to(ROOT).parts
            if not (inside[0] == "kir" and inside[1] in LINKED):
                out.append(file.read_text(encoding="utf-8"))
    return tuple(out)


def drawn(chance: random.Random, own: str, others: list[str]) -> str:
    """A word to rename `own` to, where `others` are identifiers around it."""
    near = chance.choice(others) if others else own
    kind = chance.random()
    if kind < 0.40:
        return chance.choice(made())
    if kind < 0.60:
        return chance.choice(keywords())
    if kind < 0.80:
        return chance.choice(vocabulary())
    if kind < 0.95:
        shape = chance.choice(("{0}_extent", "{0}_flat", "{0}_1", "{0}_2", "{0}__1", "{0}_", "_{0}", "{0}_0", "{0}_x", "{0}_tile", "{0}_el", "{0}_shape_0",
                               "{0}_block_0", "{0}_kept", "{0}_lo", "{0}_trip", "T_1", "t_1", "_0", "_1", "__0", "v_1_"))
        return shape.format(near.strip("_") or "x")
    numbered = (f"v{chance.randrange(100)}", f"x_{chance.randrange(20)}", f"T{chance.randrange(9)}")
    return chance.choice(("é", "größe", "χ", "名", "_", "O0", "l1", "a" * 40, *numbered))
