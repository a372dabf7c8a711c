"""list carriers, show a contract, fill holes, and check answers

A carrier is a pass that leaves a typed hole; a recording, a person or a model fills it, and every answer is checked against the contract.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kir.base.toml_text import loads
from kir.faces.cli._options import can_be_written
from kir.faces.cli._result import Result

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kir.ir.nodes import Program
    from kir.lineage.carrier import Answer, Contract
    from kir.lineage.carrier.gating import Gated
    from kir.lineage.carrier.providers.journal import Journal
    from kir.lineage.carrier.providers.provider import CarrierProvider
    from kir.lineage.carrier.providers.settings import Settings
    from kir.lineage.carrier.records import RecordFile
    from kir.lineage.carrier.sessions.session import Outcome

app = typer.Typer(add_completion=False, rich_markup_mode=None, no_args_is_help=True)
Folder = Annotated[list[Path] | None, typer.Option("--contract-folder", help="a contract that no registered pass declares (may be repeated)")]
Targets = Annotated[str, typer.Option("--target", help="targets to compile for, with commas between them")]


def _contracts(folders: Sequence[Path] | None) -> list[Contract]:
    from kir.lineage.carrier import Contract

    return [Contract(each) for each in folders or ()]


@app.command("list")
def list_(contract_folder: Folder = None) -> Result:
    """List the carriers: pass, contract, surfaces, and the recorded answers."""
    from rich.table import Table

    from kir.lineage.carrier import carriers, recorded

    shown = Table(box=None, pad_edge=False, header_style="dim")
    for heading in ("pass", "contract", "surfaces", "recorded answers"):
        shown.add_column(heading, overflow="fold")
    rows: list[dict[str, Any]] = []
    named = [(cls.name, c) for cls, c in carriers()] + [("-", c) for c in _contracts(contract_folder)]
    for name, contract in named:
        answers = [r.to_json() | {"fits": r.record.contract_hash == contract.hash} for r in recorded(contract)]
        row = {"pass": name, "contract": contract.id, "hash": contract.hash, "surfaces": list(contract.spec.surfaces), "answers": answers}
        rows.append(row)
        said = [f"{a['name']} ({a['who']}, {a['when']}{'' if a['fits'] else ', for another version'})" for a in answers]
        shown.add_row(name, contract.id, ", ".join(contract.spec.surfaces), "\n".join(said) or "none")
    return Result({"carriers": rows}, shown if rows else "no registered pass leaves holes")


@app.command()
def show(contract: Annotated[str, typer.Argument(help="a contract's id or name")], contract_folder: Folder = None) -> Result:
    """Show a contract: operands, exit invariant, budget, and its recorded answers."""
    from kir.lineage.carrier import contract_named, recorded

    found = contract_named(contract, _contracts(contract_folder))
    spec, answers = found.spec, list(recorded(found))
    limits = spec.budget
    lines = [f"{found.id}  {found.hash[:12]}", f"  on exit: {spec.title}"]
    lines += [f"  {t.role:<5} {t.name}: {t.dtype}[{', '.join(t.shape)}]" for t in spec.tensors]
    lines += [f"  T is one of {', '.join(spec.dtypes)}"] if spec.dtypes else []
    lines += [f"  granted: {fact}" for fact in spec.facts]
    lines.append(f"  level: {spec.level}, {spec.threads} threads; answers in {', '.join(spec.surfaces)}")
    lines.append(f"  budget: {limits.registers} registers a thread, {limits.shared_bytes} bytes of shared memory, {limits.seconds:.3g} s modelled at "
                 f"'{limits.at}' on {limits.target}")
    lines += [f"  answer {r.name}: {r.record.who}, {r.record.when}, {r.record.surface}, {r.record.answer[:12]}"
              + ("" if r.record.contract_hash == found.hash else ", for another version of the contract") for r in answers]
    return Result({**found.to_json(), "answers": [r.to_json() for r in answers]}, "\n".join(lines))


@app.command()
def check(
    answer: Annotated[Path, typer.Argument(help="an answer's text, or the TOML of a recorded one")],
    contract: Annotated[str, typer.Option(help="the contract's id or name; a record names its own")] = "",
    surface: Annotated[str, typer.Option(help="of the text; by default by its suffix")] = "",
    binding: Annotated[Path | None, typer.Option(help="the binding of a fragment (TOML)")] = None,
    target: Targets = "sm_80,sm_90a",
    gate: Annotated[bool, typer.Option(help="put it through the CPU gate too")] = True,
    record: Annotated[bool, typer.Option("--record", help="write its record, with the gate's word")] = False,
    who: Annotated[str, typer.Option(help="who gave it, for the record")] = "",
    note: Annotated[str, typer.Option(help="a remark, for the record")] = "",
    name: Annotated[str, typer.Option(help="its name in the record; by default the file's")] = "",
    to: Annotated[Path | None, typer.Option(help="the folder of the record; by default your own library")] = None,
    contract_folder: Folder = None,
) -> Result:
    """Check an answer against its contract: types and effects, budget, oracle, and the CPU gate."""
    from kir.base.diagnostic import did_you_mean, usage
    from kir.lineage.carrier import Answer, contract_named
    from kir.lineage.carrier import check as checked_by
    from kir.lineage.carrier.records import SUFFIX
    from kir.surface.reading import read_text

    more = _contracts(contract_folder)
    parameters: dict[str, tuple[int, ...]] = {}
    if answer.suffix == ".toml":
        held, old = _recorded(answer)
        contract, who, note, parameters = contract or old.contract, who or old.who, note or old.note, old.parameters
        name, to = name or answer.stem, to or answer.parent
    else:
        kind = surface or next((s for s, suffix in SUFFIX.items() if suffix == answer.suffix), "")
        if kind not in SUFFIX:
            raise usage("KIR-H404", f"the surface of {answer} is not known", attempt=did_you_mean(kind, SUFFIX), needs=f"--surface {'|'.join(SUFFIX)}")
        held = Answer(read_text(answer), kind, read_text(binding) if binding else "", str(answer))
    if not contract and len(more) == 1:
        contract = more[0].id
    found = contract_named(contract, more)
    verdict = checked_by(found, held)
    gated = _gated(found, verdict, target) if verdict.accepted and (gate or record) else None
    accepted = verdict.accepted and (gated is None or gated.accepted)
    data: dict[str, Any] = {**verdict.to_json(), "accepted": accepted, "gate": gated.record() if gated is not None else None}
    stage = verdict.stage if not verdict.accepted or gated is None else gated.verdict.stage
    text = f"{found.id}: {'accepted' if accepted else f'refused at {stage}'}"
    if verdict.accepted:
        text += f" ({verdict.runs} runs, {verdict.hazard_runs} with hazards checked, worst error {verdict.worst:.3g} of its bound)"
    if gated is not None:
        text += f"\ngate: {gated.verdict.reason}"
    if record and accepted and gated is not None:
        data["record"] = str(_record(found, name or answer.stem, held, gated, who, note, to, parameters=parameters))
        text += f"\nrecorded: {data['record']}"
    return Result(data, text, 0 if accepted else 1, verdict.diagnostics + (gated.diagnostics if gated is not None else ()))


def _recorded(path: Path) -> tuple[Answer, RecordFile]:
    """A record and its answer, whether or not its hashes still fit: checking is what mends it."""

    from kir.base.diagnostic import error
    from kir.lineage.carrier.records import RecordFile, held_by
    from kir.surface.reading import read_text

    try:
        record = RecordFile.model_validate(loads(read_text(path)))
        return held_by(path, record)[0], record
    except (ValueError, OSError) as bad:
        raise error("KIR-H140", f"{path}: {str(bad).splitlines()[0]}") from None


def _gated(contract: Contract, verdict: Any, target: str) -> Gated:
    from kir.hardware.target import target as named
    from kir.lineage.carrier.gating import gate_answer

    return gate_answer(contract, verdict, [named(each) for each in target.split(",") if each.strip()])


def _record(contract: Contract, name: str, answer: Any, gated: Gated, who: str, note: str, to: Path | None, provider: str = "person",
            model: str = "", prompt: str = "", parameters: dict[str, tuple[int, ...]] | None = None) -> Path:
    from kir.base.diagnostic import usage
    from kir.lineage.carrier.records import save

    if not who.strip():
        raise usage("KIR-H404", "a record says who gave the answer", needs="--who NAME")
    return save(contract, name, answer, who=who, provider=provider, model=model, prompt=prompt, note=note, gate=gated.record(), folder=to,
                parameters=parameters)


@app.command()
def fill(
    file: Annotated[str, typer.Argument(help="IR text with holes, or FILE::kernel of a surface")],
    pipeline: Annotated[str, typer.Option("--pipeline", "-p", help="passes to run first, which may leave holes")] = "",
    hole: Annotated[str, typer.Option(help="the anchor of one hole; by default every hole is filled")] = "",
    provider: Annotated[str, typer.Option(help="recorded, person, openai or anthropic; by default as the settings say")] = "",
    answer: Annotated[str, typer.Option(help="of recorded answers this one: its name, or the beginning of its hash")] = "",
    settings: Annotated[Path | None, typer.Option(help="the settings file")] = None,
    turns: Annotated[int, typer.Option(help="repairs after the first answer; by default as the settings say")] = -1,
    exchange: Annotated[Path | None, typer.Option(help="for a person elsewhere: the folder of request.md and answer.md")] = None,
    who: Annotated[str, typer.Option(help="the person who answers")] = "",
    problem: Annotated[str, typer.Option(help="what the filled program must compute: it goes through the CPU gate")] = "",
    target: Targets = "sm_80,sm_90a",
    output: Annotated[Path | None, typer.Option("--output", "-o", callback=can_be_written, help="write the filled program here")] = None,
    record: Annotated[str, typer.Option(help="record the accepted answer under this name")] = "",
    fresh: Annotated[bool, typer.Option("--restart", help="ask again for replies that are kept")] = False,
    bind: Annotated[Path | None, typer.Option(help="the binding of a generic kernel")] = None,
    contract_folder: Folder = None,
) -> Result:
    """Fill the holes of a program: from recordings, by a person, or by a model under a budget."""
    from kir.ir.printer import program_text
    from kir.lineage.carrier.providers.budget import Meter
    from kir.lineage.carrier.providers.settings import read_settings

    chosen = read_settings(settings)
    program = _with_holes(file, bind, pipeline)
    kind = _kind(provider or ("person" if exchange else chosen.provider))
    journal = _journal(program, kind, chosen, fresh)
    meter = Meter("run", chosen.budget.run)
    if journal is not None:
        journal.charge_earlier(meter)
    someone = _provider(kind, chosen, journal, answer, who, exchange)
    outcomes, program = _filled(program, hole, someone, meter, chosen, turns, _contracts(contract_folder))
    if journal is not None:
        journal.done()
    whole = all(o.program is not None for o in outcomes)
    gates, faults = _judged(outcomes, program, whole, kind, problem, target, record, who)
    accepted = whole and not faults
    text = program_text(program)
    if output is not None and accepted:
        from kir.base.store import write_atomic

        write_atomic(output, text)
    best = "" if accepted or kind == "recorded" else _best(outcomes)
    said = [line for o in outcomes for line in _told(o)] + ([f"# {line}" for line in meter.lines()] if meter.entries else [])
    said += [f"# the best answer so far: {best}"] if best else []
    data = {"filled": whole, "accepted": accepted, "holes": [o.to_json() for o in outcomes], "budget": meter.to_json(), "text": text, "best": best, **gates}
    stopped = tuple(d for o in outcomes for d in o.stopped)
    return Result(data, "\n".join([*said, text]) if accepted else "\n".join(said), 0 if accepted else 1, stopped + faults)


def _best(outcomes: Sequence[Outcome]) -> str:
    """Where the reply that got furthest is left, for a person to go on from."""
    import platformdirs

    from kir.base.store import content_hash, write_atomic

    best = outcomes[-1].best if outcomes else None
    if best is None:
        return ""
    path = Path(platformdirs.user_state_dir("kir")) / "carriers" / "best" / f"{outcomes[-1].contract.spec.name}-{content_hash(best.reply)[:12]}.md"
    write_atomic(path, best.reply)
    return str(path)


def _with_holes(file: str, bind: Path | None, pipeline: str) -> Program:
    from kir.base.diagnostic import usage
    from kir.faces.api.named import pipeline_of
    from kir.faces.cli._program import read
    from kir.lineage.carrier import holes
    from kir.rewrite import Trace

    program = read(file, bind)
    if pipeline:
        done = Trace(program)
        for step in pipeline_of(pipeline).steps:
            done = done.then(step)
        program = done.program
    if not any(True for _ in holes(program)):
        raise usage("KIR-H405", f"{file} has no hole", needs="a program that a carrier pass was run on", attempt="kir carrier list")
    return program


def _kind(provider: str) -> str:
    from kir.base.diagnostic import did_you_mean, usage
    from kir.lineage.carrier.providers.settings import PROVIDERS

    if provider not in PROVIDERS:
        raise usage("KIR-H402", f"there is no provider '{provider}'", attempt=did_you_mean(provider, PROVIDERS), needs=f"one of {', '.join(PROVIDERS)}")
    return provider


def _journal(program: Program, kind: str, settings: Settings, fresh: bool) -> Journal | None:
    """Where calls of this program to this model are kept."""
    if kind not in ("openai", "anthropic"):
        return None
    import platformdirs

    from kir.ir.canonical import content_hash
    from kir.lineage.carrier.providers.journal import Journal

    model = "".join(c if c.isalnum() else "-" for c in settings.endpoint(kind).model)
    return Journal(Path(platformdirs.user_state_dir("kir")) / "carriers", f"{content_hash(program)[:16]}-{kind}-{model[:60]}", not fresh)


def _provider(kind: str, settings: Settings, journal: Journal | None, answer: str, who: str, exchange: Path | None) -> CarrierProvider:
    if kind == "recorded":
        from kir.lineage.carrier.providers.provider import RecordedProvider

        return RecordedProvider(only=answer)
    if kind == "person":
        from getpass import getuser

        from kir.lineage.carrier.providers.person import Editor, Exchange

        return Exchange(who or getuser(), exchange) if exchange is not None else Editor(who or getuser())
    from kir.lineage.carrier.providers.chat import Chat

    return Chat.of(settings, kind, journal)


def _filled(program: Program, hole: str, provider: CarrierProvider, meter: Any, settings: Settings, turns: int,
            more: Sequence[Contract]) -> tuple[list[Outcome], Program]:
    """Every hole (or one), in order; the first that stays open ends it."""
    from kir.lineage.carrier import contract_named, holes
    from kir.lineage.carrier.sessions.session import run
    from kir.rewrite.anchor import path_of

    outcomes: list[Outcome] = []
    while (left := list(holes(program))) and not (hole and outcomes):
        path = path_of(program, hole) if hole else left[0][0]
        found = next((h for p, h in left if p == path), None)
        contract = contract_named(found.contract if found is not None else left[0][1].contract, more)
        inner = meter.child(contract.id, settings.budget.carrier)
        outcome = run(contract, program, path, provider, inner, turns=settings.turns if turns < 0 else turns, card=_card(contract))
        outcomes.append(outcome)
        if outcome.program is None:
            break
        program = outcome.program
    return outcomes, program


def _card(contract: Contract) -> dict[str, str] | None:
    """The nine fields of the library's card for the pass that leaves this hole: an admitted one first, then one of one's own; None when there is none."""
    import json

    from kir.learning.cards.library import library
    from kir.lineage.carrier import carriers
    from kir.lineage.carrier.sessions.prompt import CARD_FIELDS

    names = {cls.name for cls, known in carriers() if known.id == contract.id}
    stored = library()
    found = [each for each in stored.found if names & set(each.card.passes)]
    if not found:
        return None
    own = stored.stores[0].root
    held = min(found, key=lambda each: (each.card.state != "admitted", each.path.parent != own, each.card.name)).card.model_dump(mode="json")
    return {field: held[field] if isinstance(held[field], str) else json.dumps(held[field], ensure_ascii=False) for field in CARD_FIELDS}


def _judged(outcomes: Sequence[Outcome], program: Program, whole: bool, kind: str, problem: str, target: str, record: str,
            who: str) -> tuple[dict[str, Any], tuple[Any, ...]]:
    """What the gate says: of every new answer by itself, and of the filled program where a problem is given."""
    from kir.gate import gate_cpu
    from kir.hardware.target import target as named
    from kir.problem import load_problem

    out: dict[str, Any] = {"answers": [], "gate": None}
    faults: tuple[Any, ...] = ()
    for o in outcomes:
        attempt = o.accepted
        if attempt is None or (kind == "recorded" and not record):
            continue
        gated = _gated(o.contract, attempt.verdict, target)
        out["answers"].append(gated.record())
        faults += () if gated.accepted else gated.diagnostics or (_refused(gated.verdict.reason),)
        if record and gated.accepted:
            name = record if len(outcomes) == 1 else f"{record}-{o.contract.spec.name}"
            note = f"{len(o.attempts)} turns"
            model = attempt.who.partition(": ")[2] if kind in ("openai", "anthropic") else ""
            out["record"] = str(_record(o.contract, name, attempt.verdict.answer, gated, attempt.who, note, None, kind, model, o.templates))
    if problem and whole:
        verdict = gate_cpu(program, load_problem(problem), "", [named(each) for each in target.split(",") if each.strip()])
        out["gate"] = verdict.record
        faults += () if verdict.accepted else verdict.diagnostics() or (_refused(verdict.reason),)
    return out, faults


def _refused(reason: str) -> Any:
    from kir.base.diagnostic import Diagnostic

    return Diagnostic("KIR-H406", f"the gate refuses it: {reason}")


def _told(o: Outcome) -> list[str]:
    lines = [f"# {o.anchor}: {o.contract.id} by {o.provider}: {'filled' if o.program is not None else 'not filled'}"]
    for a in o.attempts:
        why = a.verdict.diagnostics[0] if a.verdict.diagnostics else None
        lines.append(f"#   turn {a.turn + 1}: {a.who}{', kept' if a.cached else ''}: {a.verdict.stage}" + (f", {why.id} {why.message}" if why else ""))
        lines += [f"#     {note}" for note in a.notes]
    return lines
