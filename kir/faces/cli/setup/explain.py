"""explain a kernel, within a minute; or the id of a diagnostic, an instruction, or a page

FILE[::KERNEL] is told at a glance: what it computes (its naive program), what was done to it and how that was shown to be right, what
binds it, and what else could be done, with what that would bring. The walk goes into KERNEL.lineage, where the same command goes on
and `kir report`, `kir explore` have all of it; where that is the walk of another text, binding or problem, into KERNEL.2.lineage
beside it. An id (`KIR-T001`) is said to mean what, and what to do about it; with nothing, all
ids are listed. An instruction of the IR (`trans`) is explained too, and a page of the documentation (`your-own-kernel`) is printed;
`kir explain pages` lists those.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kir.base.diagnostic import AREAS, ID_PATTERN, Explanation, did_you_mean, explanations, usage
from kir.base.instructions import Instruction, table
from kir.base.registry import registry
from kir.faces.api.pages import page, pages, title
from kir.faces.cli._options import belong, can_be_written
from kir.faces.cli._result import Result

if TYPE_CHECKING:
    from rich.console import Group

    from kir.faces.explore.overview import Overview

KERNELS = (".cu", ".cuh", ".h", ".hpp", ".cpp", ".py", ".kir", ".ptx")
"""What files of kernels end in."""
ROOM = 1.15
"""Times as long as its limit that a kernel takes before that is named."""
MOST_LINES, MOST_STEPS = 40, 40
"""Lines of a program, and steps, that a terminal shows."""

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


def command(
    what: Annotated[str, typer.Argument(help="FILE[::KERNEL]; or an id such as KIR-T001, an instruction of the IR, a page; without it, all ids")] = "",
    output: Annotated[Path | None, typer.Option("--output", "-o", callback=can_be_written, help="of a kernel: the folder of its walk; by default "
                                                "KERNEL.lineage here, KERNEL.2.lineage where that is another's")] = None,
    problem: Annotated[str, typer.Option(help="of a kernel: what it must compute; without it, the kernel itself is the reference")] = "",
    bind: Annotated[Path | None, typer.Option(help="of a kernel: its binding (TOML); by default as its launch says")] = None,
    at: Annotated[str, typer.Option(help="of a kernel: the sizes that figures are for, M=..,N=..; by default those of the call, or usual ones")] = "",
    device: Annotated[str, typer.Option(help="of a kernel: the device that figures are for (h200)")] = "",
    seconds: Annotated[float | None, typer.Option(help="of a kernel: about how long to look (50); the same command goes on")] = None,
) -> Result:
    """Explain a kernel, within a minute; or the id of a diagnostic, an instruction, or a page."""
    if "::" in what or what.partition("::")[0].endswith(KERNELS):
        from kir.faces.explore.overview import overview

        found = overview(what, bind, problem, at, device, 50.0 if seconds is None else seconds, output)
        return Result(found.to_json(), _at_a_glance(found, what, at), 1 if found.refused else 0, diagnostics=found.refused)
    belong("explain", "a kernel, FILE[::KERNEL]", {"--output": output, "--problem": problem or None, "--bind": bind, "--at": at or None,
                                                  "--device": device or None, "--seconds": seconds})
    return _of_id(what)


def _at_a_glance(found: Overview, file: str, at: str) -> Group:
    """The sections for a terminal; `at` are the sizes that were asked for."""
    from shlex import quote

    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    from kir.faces.cli._program import quoted_bind
    from kir.faces.report.chart import seconds as spelled
    from kir.faces.report.chart import times
    from kir.faces.report.terminal import Stepped
    from kir.ir.printer import program_text
    from kir.learning.forecast.shown import RESOURCES, brief

    def listed() -> Table:
        shown = Table(box=None, pad_edge=False, show_header=False)
        for justify in ("right", "left", "left"):
            shown.add_column(justify=justify)
        return shown

    lines, sizes = program_text(found.plain).rstrip().splitlines(), found.settings.text or "its sizes"
    end = "its naive program, in plain words" if found.naive else "the simplest program that was found so far" if found.walked is not None else "as it stands"
    title = f"What {found.kernel.program.name} computes ({end})"
    parts: list[Text | Table] = [Text(title, "bold"), Text("\n".join(f"  {line}" for line in lines[:MOST_LINES]))]
    parts += [Text(f"  .. {len(lines) - MOST_LINES} more lines")] if len(lines) > MOST_LINES else []
    done = found.done
    parts += [Text(""), Text(f"What was done to it, from there: {len(done)} step{'s' * (len(done) != 1)}, with conditions decided and both sides compared",
                             "bold")]
    ended = found.walked.lineage.outcome if found.walked is not None else None
    parts += [Text(f"  the walk is not at its end, {ended.reason}: the same command goes on")] if ended is not None and ended.ended == "budget" else []
    rows = listed()
    for number, each in list(enumerate(done, 1))[:MOST_STEPS]:
        how = ", ".join(f"{count} {word}" for word, count in sorted(each.decided.items())) or "no condition"
        gain = f"; modelled {times(each.modelled)}" if each.modelled else ""
        step, _, anchor = each.step.rpartition("@")
        place = anchor.partition("/")[2]
        rows.add_row(f"{number}", Stepped(f"{step}@{place}" if place else step or each.step), Text(f"{each.claim} ({how}{gain})"))
    parts += [rows] if done else []
    room = found.seconds / found.least if found.least else 1.0
    parts += [Text(""), Text(f"What binds it on {found.settings.device.name} at {sizes}, by the cost model", "bold"),
              Text(f"  {RESOURCES.get(found.bound_by, found.bound_by) or 'nothing'}: {spelled(found.seconds)} a call; moving every tensor once takes "
                   f"{spelled(found.least)}")]
    left = ", as far as the time allowed" if found.unlooked else ""
    gain = f"{len(found.could)} of" if found.could else "no single one of"
    parts += [Text(""), Text(f"What else could be done: {gain} {found.looked_at} steps looked at promises a gain{left}", "bold")]
    parts += [Text(f"  there is room for up to {times(room)}: kir optimize tries steps together")] if room > ROOM and not found.could else []
    rows = listed()
    for could in found.could:
        rows.add_row(brief(could.forecast), Stepped(could.steps), Text(could.claim + (f" (skill {could.skill})" if could.skill else "")))
    parts += [rows] if found.could else []
    if found.walked is not None:
        parts += [Text(""), Text(f"each step with its proof: {found.walked.report}\nas slides: kir explore {quote(str(found.walked.folder))}")]
    assumed = "" if file.endswith(".kir") else f"\nwhat is assumed of it: {quoted_bind(file)}"
    there = f" --shape {found.settings.text}" if at else ""
    return Group(*parts, Text(f"a faster kernel, gated: kir optimize {quote(file)}{there}{assumed}"))


def _of_id(id: str) -> Result:
    """What an id means."""
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
    if Path(id).exists():
        what = "a folder" if Path(id).is_dir() else f"no file of a kernel: those end in {', '.join(KERNELS)}"
        raise usage("KIR-C004", f"'{id}' is {what}", needs="FILE[::KERNEL], or an id, an instruction of the IR or a page")
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
