"""The tools: each a function of a `Call` and of typed arguments, whose docstring is what an agent reads.

To add one, write a function here and name it in `TOOLS`: its arguments and its answer are its schema.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field

from kir.faces.agents.calling import Call, said, short

File = Annotated[str, Field(description="FILE[::KERNEL] of CUDA, Triton or TileLang, or FILE.kir; relative to the server's folder")]
Bind = Annotated[str, Field(description="the binding (TOML) of a generic kernel; by default as the host code beside it launches it")]
Problem = Annotated[str, Field(description="what it must compute: a name of `kir problems`, a folder, or a KernelBench file")]
MOST_SITES, MOST_CARDS = 40, 20
_HAZARD = re.compile(r"KIR-Y00[23]\b")
"""Diagnostics that say what is not so, or not decided, of a kernel."""


class Program(BaseModel):
    """A program: its text (or the beginning), the resource that has it whole, and what there is to say of it."""

    text: str
    resource: str
    notes: list[str]


class Place(BaseModel):
    """A place where a pass applies: the step for `opt`, and the ids of preconditions that refuse it."""

    step: str
    refused: list[str]


class Places(BaseModel):
    """Places, and how many there are in all."""

    places: list[Place]
    total: int
    notes: list[str]


class Findings(BaseModel):
    """A run: whether it is right (None where nothing judges it), hazards, sizes."""

    ok: bool
    correct: bool | None
    findings: list[str]
    sizes: dict[str, int | float]
    notes: list[str]


class Decided(BaseModel):
    """What holds for every size: proved, refuted (each finding with the sizes that show it) or undecided (with why); and the same of each kind of hazard."""

    verdict: str
    kinds: dict[str, str]
    findings: list[str]
    notes: list[str]


class Judged(BaseModel):
    """A verdict of the gate: where it refused, why, and seconds by target from the cost model (not measured)."""

    accepted: bool
    stage: str
    reason: str
    modelled: dict[str, float]
    notes: list[str]


class Story(BaseModel):
    """A lineage: forward steps from naive to the kernel, and where its report is."""

    steps: list[str]
    ended: str
    replay_exact: bool
    folder: str
    report: str
    notes: list[str]


class Glance(BaseModel):
    """A kernel at a glance: the simplest program that computes the same (naive, or as far as the walk came), the steps from there with what they are for, what
    binds it (modelled seconds, and the least that moving every tensor once takes), and the steps that are forecast to gain."""

    computes: Program
    naive: bool
    done: list[str]
    bound_by: str
    seconds: float
    least_seconds: float
    could: list[str]
    sizes: dict[str, int]
    lineage: str
    notes: list[str]


class Card(BaseModel):
    """A skill card: what it says, its state, its passes, how many kernels it was seen in."""

    name: str
    title: str
    state: str
    steps: list[str]
    kernels: int
    resource: str
    here: str = Field("", description="with a kernel: what it is forecast to bring there, and the steps that do")


class Cards(BaseModel):
    """Cards, and how many there are in all."""

    cards: list[Card]
    total: int


class Applied(BaseModel):
    """A card's steps on a kernel: the pipeline for `opt`, and the program that it gives."""

    pipeline: str
    program: Program


class Forecast(BaseModel):
    """What a step is likely to bring (a speedup above 1 is faster), before anything is measured: the median, what 80 % of the model's belief lies between, how
    likely it fails (0 to 1), why not to rely on it ("" when one may), and the resources that move most, in seconds."""

    speedup: float
    low: float
    high: float
    fails: float
    defer: str
    model: str
    reasons: list[str]
    notes: list[str]


class Faster(BaseModel):
    """What a search found: how many times as fast the best kernel is (`kind`: modelled or measured; 1 where nothing is faster), its steps with what each
    brought, what it gives up, the share of what the device allows, and the file that holds it ("" for none)."""

    speedup: float
    kind: str
    steps: list[str]
    losses: list[str]
    of_limit: float
    bound_by: str
    ended: str
    file: str
    notes: list[str]


class Text(BaseModel):
    """A text; of a longer one the beginning, and the resource that is all of it."""

    text: str
    resource: str = ""


async def parse(call: Call, file: File, bind: Bind = "") -> Program:
    """Read a kernel into KIR's IR, specialized and in normal form."""
    found = await call.command("parse", file, "--normal", *_bound(bind))
    return _program(call, found["text"], found)


async def sites(call: Call, file: File, only: Annotated[str, Field(description="only this pass")] = "", bind: Bind = "",
                direction: Literal["forward", "backward"] = "forward") -> Places:
    """List where optimizing passes apply to a kernel (backward: where an optimization can be taken out), with the preconditions that refuse them."""
    found = await call.command("sites", file, *(("--pass", only) if only else ()), *_bound(bind))
    rows = [r for r in found["sites"] if r["direction"] == direction and "step" in r]
    places = [Place(step=r["step"], refused=r["refused"]) for r in sorted(rows, key=lambda r: bool(r["refused"]))]
    return Places(places=places[:MOST_SITES], total=len(places), notes=_notes(found))


async def opt(call: Call, file: File, pipeline: Annotated[str, Field(description="steps as `sites` names them, with ; between")],
              emit: Literal["kir", "cuda", "triton", "tilelang"] = "kir", bind: Bind = "") -> Program:
    """Apply passes to a kernel and write the result as IR or as a kernel of a surface. A step whose preconditions fail is refused with a witness."""
    found = await call.command("opt", file, "-p", pipeline, "--emit", emit, *_bound(bind))
    return _program(call, found["text"], found)


async def diff(call: Call, a: File, b: File, bind: Bind = "") -> Text:
    """Show the structural difference of two programs: moved statements as moved."""
    found = await call.command("diff", a, b, *_bound(bind))
    return Text(text=short("\n".join(f"{r['kind']:<8} {r.get('before') or ''}{' -> ' if r.get('before') and r.get('after') else ''}{r.get('after') or ''}"
                                    for r in found["rows"] if r["kind"] != "kept")))


async def run(call: Call, file: File, problem: Problem = "", check: bool = True, bind: Bind = "",
              sizes: Annotated[dict[str, float] | None, Field(description="sizes and scalars, where no problem gives them")] = None) -> Findings:
    """Run a kernel on the CPU without a GPU; with check: races, missing barriers, undefined values, out-of-bounds places, each with its line."""
    given = [word for name, value in (sizes or {}).items() for word in ("--set", f"{name}={value:g}")]
    found = await call.command("run", file, *(("--problem", problem) if problem else ()), *(("--check",) if check else ()), *given, *_bound(bind))
    right = found["correct"]["ok"] if found.get("correct") else None
    return Findings(ok=found["exit"] == 0, correct=right, findings=[f"{f['severity']}: {f['message']}" for f in found["findings"]][:20],
                    sizes=found["sizes"], notes=_notes(found))


async def check(call: Call, file: File, bind: Bind = "") -> Decided:
    """Decide for every size, without a run or a problem: races, bounds, barriers, undefined values. What is refuted comes with sizes that show it."""
    found = await call.command("check", file, *_bound(bind))
    wrong = [each for each in map(said, found.get("diagnostics", [])) if _HAZARD.match(each)]
    left = [f"not decided: {f['what']}{_line(f['origin'])}: {f['why']}" for f in found["findings"] if f["status"] == "undecided"]
    return Decided(verdict=str(found["verdict"]), kinds=found["kinds"], notes=[each for each in _notes(found) if not _HAZARD.match(each)],
                   findings=[*wrong, *dict.fromkeys(left)][:20])


async def gate(call: Call, file: File, problem: Problem = "",
               against: Annotated[str, Field(description="another FILE[::KERNEL], or MODULE:FUNCTION of PyTorch's, that computes the same")] = "",
               bind: Bind = "", surface: Literal["", "cuda", "triton", "tilelang"] = "") -> Judged:
    """Put a kernel through the gate: compiled where the compilers are, correctness against a float64 oracle or another kernel, profile modelled."""
    words = [*(("--problem", problem) if problem else ()), *(("--against", against) if against else ()), *(("--surface", surface) if surface else ())]
    found = await call.command("gate", file, *words, *_bound(bind))
    rows = [r for r in found.get("profile", []) if r.get("kind", "modelled") == "modelled"]
    return Judged(accepted=found["exit"] == 0, stage=str(found.get("stage", "")), reason=str(found.get("reason", "")),
                  modelled={f"{r['target']} at {r['shape']}": r["seconds"] for r in rows}, notes=_notes(found))


async def lineage(call: Call, file: File, folder: Annotated[str, Field(description="the folder to write; by default FILE.lineage here")] = "",
                  problem: Problem = "",
                  steps: Annotated[int, Field(ge=1, description="the most steps")] = 400,
                  seconds: Annotated[float, Field(ge=0, description="wall time after which the walk ends; the same call goes on")] = 0.0,
                  bind: Bind = "") -> Story:
    """Walk a kernel back to the naive program, one gated step at a time: what its author did, as steps that replay forward. Minutes for a large kernel."""
    folder = folder or f"{Path(file.partition('::')[0].rpartition(':')[2]).stem}.lineage"
    async with call.alone(Path(folder)):
        found = await call.command("lineage", file, "-o", folder, "--steps", str(steps), "--seconds", str(seconds),
                                   *(("--problem", problem) if problem else ()), *_bound(bind))
    name = Path(folder).name
    call.kept.reports[name] = (call.folder / folder / "report.html").resolve()
    return Story(steps=[t["forward"] for t in found["transitions"]], ended=str(found["ended"]), replay_exact=bool(found["replay_exact"]), folder=folder,
                 report=f"kir://report/{name}", notes=_notes(found))


async def skills_search(call: Call, words: Annotated[str, Field(description="words, which the cards found fit best; empty: all cards")] = "",
                        file: Annotated[str, Field(description="a kernel as in `parse`: only cards that apply to it, those forecast to pay first")] = "",
                        bind: Bind = "") -> Cards:
    """Search verified optimization steps (skill cards) that walks of expert kernels have in common: by words, or those that apply to a kernel."""
    asked = ("search", *words.split(), *(("--for", file, *_bound(bind)) if file else ())) if file or words.split() else ("list",)
    found = await call.command("skills", *asked)
    known = [c for c in found.get("hits", found.get("cards", [])) if not file or c["applications"]]
    cards = [Card(name=c["name"], title=c["title"], state=c["state"], steps=[str(s) for s in c["steps"]], kernels=c["kernels"],
                  resource=f"kir://card/{c['name']}", here=_here(c)) for c in known]
    return Cards(cards=cards[:MOST_CARDS], total=len(cards))


def _here(card: Mapping[str, Any]) -> str:
    found = card.get("forecast")
    if not found:
        return ""
    low, high = found["interval"]
    options = [" ".join(f"{name}={value}" for name, value in s.get("options", {}).items()) for s in card["best"]]
    steps = "; ".join(f"{s['pass']}{f'{{{some}}}' if some else ''}@{s['at']}" for s, some in zip(card["best"], options, strict=True))
    return f"{found['speedup']:.3g}x ({low:.3g}x to {high:.3g}x), pays: {found['pays']}; {steps}"


async def skills_apply(call: Call, card: Annotated[str, Field(description="a card's name, as `skills_search` gives it")], file: File, bind: Bind = "",
                       at: Annotated[str, Field(description="a place of the kernel; empty: every place where the card holds")] = "",
                       emit: Literal["kir", "cuda", "triton", "tilelang"] = "kir") -> Applied:
    """Apply a skill card to a kernel: its conditions are judged anew for this kernel, and its steps written for it. Refused where a condition fails."""
    found = await call.command("skills", "apply", card, file, "--emit", emit, *(("--at", at) if at else ()), *_bound(bind))
    return Applied(pipeline=str(found["pipeline"]), program=_program(call, str(found["program"]), found))


async def forecast(call: Call, a: File, b: Annotated[str, Field(description="the kernel that it would become; empty with `step`")] = "",
                   step: Annotated[str, Field(description="steps as `sites` names them")] = "", problem: Problem = "",
                   shape: Annotated[str, Field(description="sizes as M=..,N=.., or a shape of the problem")] = "",
                   target: Annotated[str, Field(description="the device, such as h200")] = "h200", bind: Bind = "") -> Forecast:
    """Forecast what a step (or a changed kernel) brings on a device, without running or compiling anything. Give sizes or a problem."""
    words = [*((b,) if b else ()), *(("--step", step) if step else ()), *(("--problem", problem) if problem else ()), *(("--shape", shape) if shape else ())]
    found = await call.command("forecast", a, *words, "--target", target, *_bound(bind))
    reasons = [f"{r['resource']}: {r['before']:.3g} to {r['after']:.3g} s" for r in found["reasons"][:6]]
    return Forecast(speedup=found["speedup"], low=found["interval"][0], high=found["interval"][1], fails=found["fails"], defer=found["defer"],
                    model=found["model"], reasons=reasons, notes=_notes(found))


async def optimize(call: Call, output: Annotated[str, Field(description="the file to write: OUT.cu, OUT.py, OUT.kir, or OUT.patch of `file`")],
                   problem: Problem = "", file: Annotated[str, Field(description="the kernel to make faster; empty: the problem's naive program")] = "",
                   shape: Annotated[str, Field(description="where to be fast: a shape of the problem, or M=..,N=..")] = "", bind: Bind = "",
                   surface: Literal["", "cuda", "triton", "tilelang", "any"] = "",
                   candidates: Annotated[int, Field(ge=1, le=200, description="kernels to put through the gate")] = 5,
                   seconds: Annotated[float, Field(gt=0, description="wall time after which the search ends")] = 60.0,
                   target: Annotated[str, Field(description="the device that is modelled")] = "h200", compile: bool = True) -> Faster:
    """Search for a faster kernel under a budget; every candidate passes the gate first. Times are modelled, not measured. A minute or more."""
    words = [*((file,) if file else ()), "-o", output, *(("--problem", problem) if problem else ()), *(("--shape", shape) if shape else ()), *_bound(bind),
             *(("--surface", surface) if surface else ()), *(() if compile else ("--no-compile",)), "--target", target]
    async with call.alone(Path(output)):
        found = await call.command("optimize", *words, "--budget", f"candidates={candidates},seconds={seconds:g}")
    best = found["best"] or {"steps": [], "losses": []}
    return Faster(speedup=found["speedup"] if found["best"] else 1.0, kind=found["baseline"]["kind"], steps=[s["step"] for s in best["steps"]],
                  losses=best["losses"], of_limit=found["limit"]["share"], bound_by=found["limit"]["bound_by"], ended=found["ended"],
                  file=found["files"][0] if found["best"] and found["files"] else "", notes=_notes(found))


async def glance(call: Call, file: File, bind: Bind = "", problem: Problem = "",
                 at: Annotated[str, Field(description="the sizes that figures are for, M=..,N=..; empty: those of the call, or usual ones")] = "",
                 seconds: Annotated[float, Field(description="about how long to look; the same call goes on with the walk")] = 50.0) -> Glance:
    """Look at a kernel whole: what it computes, what was done to it, what binds it, and what else could be done. The place to begin."""
    found = await call.command("explain", file, "--seconds", f"{seconds:g}", *(("--problem", problem) if problem else ()), *(("--at", at) if at else ()),
                               *_bound(bind))
    could = [f"{c['forecast']['speedup']:.3g}x: {c['steps']}{f' (skill {name})' if (name := c['skill']) else ''}: {c['claim']}" for c in found["could"]]
    return Glance(computes=_program(call, str(found["computes"]), found), naive=found["naive"], done=[f"{d['step']}: {d['claim']}" for d in found["done"]],
                  bound_by=found["bound_by"], seconds=found["seconds"], least_seconds=found["least_seconds"], could=could, sizes=found["sizes"],
                  lineage=found["lineage"], notes=_notes(found))


async def explain(call: Call, id: Annotated[str, Field(description="an id such as KIR-P520, or a page such as your-own-kernel")]) -> Text:
    """Say what a diagnostic or a precondition means, and what to do about it; or give a page of the documentation (`pages` lists them)."""
    found = await call.command("explain", id)
    if "page" in found:
        return Text(text=short(str(found["page"])), resource=f"kir://page/{id}")
    told = [str(found.get(key)) for key in ("title", "explain", "mend") if found.get(key)]
    told += [f"{d['pass']}: {d['sentence']} ({d['kind']})" for d in found.get("declared", [])]
    return Text(text="\n\n".join(told) or str({k: v for k, v in found.items() if k not in ("schema", "exit")}))


TOOLS: tuple[Callable[..., Awaitable[Any]], ...] = (
    glance, parse, sites, opt, diff, run, check, gate, forecast, lineage, optimize, skills_search, skills_apply, explain)
"""In the order in which an agent sees them."""


def _line(origin: dict[str, Any] | None) -> str:
    return f" ({Path(origin['file']).name}:{origin['line']})" if origin else ""


def _bound(bind: str) -> tuple[str, ...]:
    return ("--bind", bind) if bind else ()


def _notes(found: dict[str, Any]) -> list[str]:
    """What a command says beside its result."""
    return [said(each) for each in found.get("diagnostics", [])][:12]


def _program(call: Call, text: str, found: dict[str, Any]) -> Program:
    key = str(found.get("hash") or hashlib.sha256(text.encode()).hexdigest())[:16]
    return Program(text=short(text), resource=call.kept.keep(text, key), notes=_notes(found))
