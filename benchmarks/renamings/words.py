"""Words that KIR uses, collected from its grammars, tables and code: its own variables, what passes and frontends call things, keywords of the IR's
text, instructions and dtypes, and the vocabulary of the surfaces."""
from __future__ import annotations

import ast
import random
import re
from functools import cache
from pathlib import Path

from kir.instructions import table
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
    """Names that KIR makes: words in calls that name something, and constants of the frontends that spell a family of them."""
    out: set[str] = set()
    for tree in _trees():
        for node in ast.walk(tree):
            called = node.func.attr if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) else (
                node.func.id if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) else "")
            if called in MAKING and isinstance(node, ast.Call):
                for x in (y for a in node.args for y in ast.walk(a)):
                    out |= set(_spellings(x))
            elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and node.targets[0].id in FAMILIES:
                for x in ast.walk(node.value):
                    out |= set(_spellings(x))
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
    """Identifiers that the code of frontends, backends and passes knows as texts: keywords, built-in functions and library words of the
    surfaces, names of passes' fields, words of templates."""
    out: set[str] = set()
    for folder in ("frontends", "backends", "passes"):
        for tree in _trees(folder):
            for node in ast.walk(tree):
                if isinstance(node, ast.Constant) and isinstance(node.value, str) and len(node.value) < 2000:
                    out |= {w for w in re.split(r"\s+", node.value) if _NAME.fullmatch(w) and len(w) <= 24} if _is_list(node.value) else set()
    return tuple(sorted(out))


def _is_list(text: str) -> bool:
    words = text.split()
    return bool(words) and sum(bool(_NAME.fullmatch(w)) for w in words) == len(words) and not re.search(r"[a-z] (a|the|of|is) [a-z]", text)


def _spellings(node: ast.AST) -> tuple[str, ...]:
    """The names that a text, or a text with parts worked out, may stand for."""
    match node:
        case ast.Constant(value=str() as word) if _NAME.fullmatch(word):
            return (word,)
        case ast.JoinedStr(values=parts):
            out = []
            for filled in ("0", "1", "x"):
                word = "".join(p.value if isinstance(p, ast.Constant) and isinstance(p.value, str) else filled for p in parts)
                out += [word] if _NAME.fullmatch(word) else []
            return tuple(out)
        case _:
            return ()


@cache
def _trees(*folders: str) -> tuple[ast.Module, ...]:
    out = []
    for folder in folders or CODE:
        for file in sorted((ROOT / folder).rglob("*.py")):
            inside = file.relative_to(ROOT).parts
            if not (inside[0] == "kir" and inside[1] in LINKED):
                out.append(ast.parse(file.read_bytes()))
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
