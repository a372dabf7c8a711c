"""say what a diagnostic's id means, and what to do about it

With no id, lists all of them. An instruction of the IR (`trans`) is explained too, and a page of the documentation
(`your-own-kernel`) is printed; `kir explain pages` lists those.
"""

from __future__ import annotations

import re
from typing import Annotated

import typer

from kir.base.diagnostic import AREAS, ID_PATTERN, Explanation, did_you_mean, explanations, usage
from kir.base.instructions import Instruction, table
from kir.base.registry import registry
from kir.faces.api.pages import page, pages, title
from kir.faces.cli._result import Result

OF_KIND = {
    "validity": "Where it does not hold, the pass would change what the program computes: it is refused when refuted (the witness shows where) and when\n"
                "unknown. What to do: state the fact that is missing (`fact` in the IR, `facts` in a binding); or take another parameter or place. Where\n"
                "it is unknown, `--assume ID` takes it on trust and on record, and `--guard ID` (`guard ID` in a pipeline) has it checked at launch.",
    "profit": "It is advice: where it does not hold the pass is applied all the same, with a warning that it may gain nothing.",
}
"""What the kind of a precondition means for whoever meets it."""


OF_EXPRESSIONS = {
    "min": "min(a, b): the smaller of two values of one dtype, for each element; the other operand where one is NaN.",
    "max": "max(a, b): the larger of two values of one dtype, for each element; the other operand where one is NaN.",
    "ceildiv": "ceildiv(a, b): the quotient of two integers, rounded up (`a // b` rounds down).",
    "tdiv": "tdiv(a, b): the quotient of two integers, rounded toward zero as in C (`a // b` rounds down).",
    "trem": "trem(a, b): the remainder that belongs to tdiv, with the sign of a, as in C (`a % b` has that of b).",
    "select": "select(c, a, b): a where the condition c holds, else b, for each element; both are evaluated.",
    "cast": "cast(x, dtype): x converted; cast(x, dtype, rz) rounds toward zero, `bits` reinterprets, `sat` saturates.",
    "load": "load(A[i] where m else x clip cache p): a read with a mask, a value where the mask is false, bounds that are clipped, a cache policy.",
    "addr": "addr(A[i]): the address of an element.",
}
"""Expressions that look like calls and are no rows of the instruction table."""


def command(id: Annotated[str, typer.Argument(help="an id such as KIR-T001, an instruction of the IR, or a page; without it, all ids")] = "") -> Result:
    """Say what a diagnostic's id means, and what to do about it."""
    rows = explanations()
    if not id:
        listing = {key: rows[key].title for key in sorted(rows)}
        return Result({"ids": listing}, "\n".join(f"{key}  {title}" for key, title in listing.items()))
    wanted = id.upper() if id.upper().startswith("KIR-") else f"KIR-{id.upper()}"
    if wanted in rows:
        return _explained(rows[wanted])
    if ID_PATTERN.fullmatch(wanted) and wanted[4] == "P" and (places := _declared_in_passes(wanted)):
        said = list(dict.fromkeys(str(place["sentence"]) for place in places))
        kinds = sorted({str(place["kind"]) for place in places})
        text = [f"{wanted}  {'; '.join(said)}  ({AREAS['P']}, {', '.join(kinds)})", "", *(OF_KIND[kind] for kind in kinds if kind in OF_KIND), ""]
        text += ["declared by:", *(f"  {place['pass']}  {place['file']}:{place['line']}" for place in places)]
        text += ["", f"More of a pass, with the programs before and after it: kir passes {places[0]['pass']}"]
        return Result({"id": wanted, "area": AREAS["P"], "declared": places}, "\n".join(text))
    if id in table():
        return _instruction(table()[id])
    if id in registry("kir.passes"):
        raise usage("KIR-C004", f"'{id}' is a pass, no id of a diagnostic", attempt=f"kir passes {id}")
    if id in OF_EXPRESSIONS:
        means = OF_EXPRESSIONS[id]
        return Result({"id": id, "expression": means}, f"{id}  (an expression of the IR: kir/ir/nodes.py)\n\n{means}")
    if id == "pages":
        told = {name: title(file) for name, file in pages().items()}
        return Result({"pages": told}, "\n".join(f"{name:<26}{words}" for name, words in told.items()))
    if (found := page(id)) is not None:
        whole = found.read_text(encoding="utf-8")
        return Result({"id": id, "title": title(found), "page": whole}, whole)
    if re.fullmatch(r"KIR-\w+|[A-Z]\d+", id.upper()):
        hint = did_you_mean(wanted, [each for each in rows if each[:5] == wanted[:5]])  # another area's is never meant
        raise usage("KIR-C004", f"there is no diagnostic '{id}'{f'; {hint}' if hint else ''}", attempt="kir explain")
    raise usage("KIR-C004", f"'{id}' is no id of a diagnostic, no instruction of the IR and no page",
                attempt=did_you_mean(id, [*table(), *OF_EXPRESSIONS, *pages()]) or "kir explain")


def _instruction(row: Instruction) -> Result:
    """A row of the instruction table, in words."""
    least, most = row.args
    count = f"{least} operand{'' if least == 1 else 's'}" if least == most else f"{least} to {most} operands"
    by = {"element": "each element", "tile": "whole tiles"}.get(row.level, f"a {row.level}")
    effect = {"": "no effect beyond its value", "hint": "a hint only"}.get(row.effect, f"effect: {row.effect}")
    text = [f"{row.name}  (an instruction of the IR: grammars/instructions.toml)", "", *([row.doc, ""] if row.doc else [])]
    text += [f"{count}; for {by}; {effect}; typing rule '{row.rule}' (kir/ir/signatures.py)"]
    text += [f"in {surface}: {spelling}" for surface, spelling in row.spelling] + ([f"PTX: {row.ptx}"] if row.ptx else [])
    json = {"name": row.name, "doc": row.doc, "operands": list(row.args), "level": row.level, "effect": row.effect, "rule": row.rule,
            "spelling": dict(row.spelling), "ptx": row.ptx}
    return Result({"id": row.name, "instruction": json}, "\n".join(text))


def _explained(row: Explanation) -> Result:
    area = AREAS[row.id[4]]
    text = f"{row.id}  {row.title}  ({area})\n\n{row.explain}\n\nWhat to do: {row.mend}"
    return Result({"id": row.id, "area": area, "title": row.title, "explain": row.explain, "mend": row.mend}, text)


def _declared_in_passes(id: str) -> list[dict[str, str | int]]:
    """Where passes declare a precondition, found in their text so that a pass that fails to import is no obstacle."""
    import ast

    from kir.rewrite.catalog import conditions

    places: list[dict[str, str | int]] = []
    for entry in registry("kir.passes"):
        text = entry.file.read_text(encoding="utf-8")
        if f'"{id}"' not in text:
            continue
        for each in conditions(ast.parse(text)):
            if each.id == id:
                places.append({"pass": entry.name, "file": str(entry.file), "line": each.line, "sentence": each.sentence, "kind": each.kind,
                               "category": each.category})
    return places
