"""``python -m benchmarks.forecast train`` makes the shipped model from the shipped data, ``table`` the page ``docs/tables/forecasts.md``, ``freeze`` keeps what
today's cost model says of every program, for later ones to be compared with, and ``card`` writes the generated part of the data's page. ``fresh`` makes the
page of kernels that nobody had measured when the model was trained (``forecasts-fresh.md``), ``ablations`` that of the model trained with one thing changed
(``forecasts-ablations.md``), ``ways`` that of other ways to learn (``forecasts-ways.md``). ``noise`` prints how often a measured sign comes again, ``analytic``
the rows of the analytic model alone, ``failures`` how often programs failed of which it expects that.
"""
from __future__ import annotations

import argparse
import math
import os
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np

from benchmarks.forecast import answers, card, failures, fresh, heuristics, limits, measures, noise, page, tried
from benchmarks.forecast import pools as pooled
from kir.base.store import write_atomic
from kir.hardware.target import target as target_of
from kir.ir.parser import parse_program
from kir.learning.forecast.analytic import Analytic
from kir.learning.forecast.data import Data, PairRow, read, write
from kir.learning.forecast.distribution import Forecaster, Pair
from kir.learning.forecast.language import Language
from kir.learning.forecast.learned import Learned, shipped
from kir.learning.forecast.matrices import ONE_FAMILY, States, drawn_of, rows_of, settled, sizes_text, states, unsettled
from kir.learning.forecast.model import Model
from kir.learning.forecast.training import Options, Rows, train
from kir.learning.forecast.trees import Array

ROOT = Path(__file__).parents[2]
DATA = ROOT / "benchmarks" / "data" / "effects"
TABLES = ROOT / "docs" / "tables"
COMMAND = "python -m benchmarks.forecast train"
ABLATIONS = {"shaped": "learned, shaped for calibration", "uncalibrated": "learned, not calibrated", "bare": "learned, without analytic terms",
             "free": "learned, not monotone", "way": "learned, without the forest of which is faster",
             "drawn": "learned, from any two programs of a kernel too", "few": "learned, half the trees", "more": "learned, twice the trees"}
TRIES = 25
"""How often a forecast is timed."""
SHAPED = 1.0
"""How much the Brier score counts in the row that shows shaping."""


def main() -> None:
    """Run one of the commands."""
    asked = argparse.ArgumentParser(prog="python -m benchmarks.forecast", description=__doc__)
    asked.add_argument("command", choices=("train", "table", "fresh", "ablations", "ways", "freeze", "card", "noise", "analytic", "failures"))
    asked.add_argument("--data", type=Path, default=DATA, help="the folder of the data")
    asked.add_argument("--cache", type=Path, default=Path("~/.cache/kir").expanduser(), help="a folder in which features and fits are kept")
    asked.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    asked.add_argument("--seed", type=int, default=0)
    asked.add_argument("--shaped", type=float, default=0.0, help="how much the Brier score counts in training (0: not at all)")
    asked.add_argument("--model", type=Path, default=None, help="the file of the model")
    asked.add_argument("--into", type=Path, default=TABLES, help="table: the folder of the page")
    asked.add_argument("--language", type=int, default=0, help="table: of how many pairs the language model of the settings is asked, for rows of its own")
    asked.add_argument("--ablations", default=",".join(ABLATIONS), help="ablations: which of them")
    given = asked.parse_args()
    data = read(given.data)
    if given.command == "freeze":
        freeze(data, given.data)
        return
    if given.command == "card":
        card.write(data, given.data)
        return
    if given.command == "noise":
        print("\n".join(noisy(data)))
        return
    if given.command == "fresh":
        told = fresh.page_of(given.model or shipped(), given.data, given.cache, given.jobs, _progress)
        write_atomic(given.into / "forecasts-fresh.md", told)
        return
    found = states(data, given.cache, given.jobs, _progress)
    if given.command == "analytic":
        print("\n".join(analytic(data, found)))
        return
    rows, pairs = rows_of(data, found)
    print(f"{len(rows)} of {len(data.pairs)} pairs, {rows.used} features", file=sys.stderr)
    if given.command == "failures":
        print("\n".join(failures.lines(failures.classes(found, pairs))))
    elif given.command == "train":
        options = Options(given.seed, given.shaped)
        train(rows, options, {"command": _command(given)}).write(given.model or shipped())
    elif given.command == "ways":
        write_atomic(given.into / "forecasts-ways.md", tried.page(data, found, rows, pairs, given.jobs, given.seed, _told))
    elif given.command == "ablations":
        write_atomic(given.into / "forecasts-ablations.md", ablated(data, found, rows, pairs, given))
    else:
        table(data, found, rows, pairs, given)


def noisy(data: Data) -> list[str]:
    """Tables of how often a measured sign comes again: in all, and by the size of the effect; and what that leaves a forecast that knows the truth."""
    most = f"{noise.ceiling(data.pairs):.1%}".replace("%", " %")
    return [*noise.lines(noise.repeats(data)), "", *noise.lines(noise.by_size(data.pairs), "size of the effect, in another group on the same device"), "",
            f"With as many effects of each size as the data have, a forecast that knew every true speedup would have {most} of the signs beyond 3 % right."]


def analytic(data: Data, found: States) -> list[str]:
    """The rows of the analytic model, before anything is compiled and after: it is trained on nothing, and so no part need be left out."""
    pairs = settled(data, found)
    measured, fault = np.array([math.nan if p.fault else math.log(p.speedup) for p in pairs]), np.array([bool(p.fault) for p in pairs])
    pools = pooled.pools(data, found)
    shown = [page.Line(each.name, measures.figures(each, measured, fault), pooled.figures(pools, pooled.by_seconds({k: s["t.total"] for k, s in held.items()})))
             for each, held in ((answers.analytic(found, pairs), found.plain), (answers.analytic(found, pairs, True), found.code))]
    return [*page.of_pairs(shown), "", *page.of_pools(shown)]


def _command(given: argparse.Namespace) -> str:
    return COMMAND + (f" --seed {given.seed}" if given.seed else "") + (f" --shaped {given.shaped:g}" if given.shaped else "")


def _progress(done: int, whole: int) -> None:
    if done % 100 == 0 or done == whole:
        print(f"features: {done} of {whole} programs", file=sys.stderr)


def table(data: Data, found: States, rows: Rows, pairs: Sequence[PairRow], given: argparse.Namespace) -> None:
    """Write the page and its plots. Raises KirError KIR-E005 where the model whose time is taken was trained on other data."""
    if (file := given.model or shipped()).is_file():
        Model.read(file, data.hash)
    own = {"analytic": answers.analytic(found, pairs), "code": answers.analytic(found, pairs, True)}
    splits = ["family", *(["device"] if len({p.device for p in pairs}) > 1 else [])]
    folds = {split: answers.left_out(rows, pairs, split) for split in splits}
    wanted = {split: answers.without(rows, folds[split], {"learned": Options(given.seed, given.shaped)}) for split in splits}
    fitted = answers.fit([each for fits in wanted.values() for each in fits], given.jobs, _told, given.cache / "forecast-fits")
    made = {name: [fitted.pop(0)["learned"] for _ in fits] for name, fits in wanted.items()}
    spoken, ended = answers.spoken(Language.of_settings(), data, pairs, given.language, given.seed) if given.language else (None, "")
    lines: dict[str, list[page.Line]] = {}
    curves: dict[str, answers.Answers] = {}
    beside: list[str] = []
    pools = pooled.pools(data, found)
    for split in splits:
        asked = _of_pool(made[split], pairs, folds[split], split)
        lines[split], told = _lines(data, found, rows, pairs, folds[split], own, pools, asked, made[split])
        if split == "family" and spoken is not None:
            both: Array = np.isfinite(spoken.logs[:, 0])
            lines[split] += [page.Line(each.name, measures.figures(each, rows.measured, rows.fault))
                             for each in (spoken, *(answers.alone(each, both) for each in (own["analytic"], told["learned"])))]
        if split == "family":
            beside = heuristics.lines([p for p in pools if ONE_FAMILY.get(p.family, p.family) == "gemm"], data,
                                      {"analytic": pooled.by_seconds({k: s["t.total"] for k, s in found.plain.items()}),
                                       "learned": pooled.by_model(asked, found)})
        curves = curves or told
    write_atomic(given.into / "forecasts-confidence.svg", page.square("Confidence and being right", "confidence in the likeliest bin",
                                                                       "how often it was right",
                 {name: [(a, b) for a, b, _ in measures.reliability(each, rows.measured)] for name, each in curves.items()}))
    write_atomic(given.into / "forecasts-levels.svg", page.square("Levels and coverage", "level", "measurements below its quantile",
                 {name: measures.coverage(each, rows.measured) for name, each in curves.items()}))
    text = page.page(data, lines, timing(data, pairs, given.model), _left_out(data, found, ended), noisy(data), beside,
                     [*limits.lines(rows, pairs, own["analytic"]), *limits.of_scores(rows.measured, own["analytic"], curves["learned"])],
                     limits.wrong(rows, pairs, data, curves), limits.sure(list(curves.values()), rows.measured))
    write_atomic(given.into / "forecasts.md", text)


def ablated(data: Data, found: States, rows: Rows, pairs: Sequence[PairRow], given: argparse.Namespace) -> str:
    """The page of the model beside itself trained with one thing changed, families left out."""
    folds = answers.left_out(rows, pairs, "family")
    fits = _fits(data, found, rows, pairs, folds, Options(given.seed, given.shaped), given.ablations.split(","))
    models: dict[str, list[Model]] = {}
    for made in answers.fit(fits, given.jobs, _told, given.cache / "forecast-fits"):
        for name, model in made.items():
            models.setdefault(name, []).append(model)
    pools = pooled.pools(data, found)
    return page.ablations(data, [page.Line(name, measures.figures(answers.asked(name, held, rows, folds), rows.measured, rows.fault),
                                           pooled.figures(pools, pooled.by_model(_of_pool(held, pairs, folds, "family"), found)))
                                 for name, held in models.items()])


def _of_pool(models: Sequence[Model], pairs: Sequence[PairRow], folds: Array, split: str) -> Callable[[pooled.Pool], Model]:
    """Which of the models is asked about a pool: the one that has not seen its family, or its device."""
    part = {(ONE_FAMILY.get(p.family, p.family) if split == "family" else p.device): int(f) for p, f in zip(pairs, folds, strict=True)}
    return lambda pool: models[part[ONE_FAMILY.get(pool.family, pool.family) if split == "family" else pool.device]]


def _fits(data: Data, found: States, rows: Rows, pairs: Sequence[PairRow], folds: Array, plain: Options, shown: Collection[str]) -> list[answers.Fit]:
    """What is trained for the page of ablations: the model, and those that are shown."""
    same = {"learned": plain, **{ABLATIONS[name]: each for name, each in (("shaped", replace(plain, shaped=SHAPED)),
                                                                         ("uncalibrated", replace(plain, calibrated=False))) if name in shown}}
    out = answers.without(rows, folds, same)
    if "drawn" in shown:
        drawn, of_drawn = drawn_of(data, found, rows)
        out += answers.without(rows, folds, {ABLATIONS["drawn"]: plain}, drawn, answers.parts_of(drawn, of_drawn, rows, pairs, folds, "family"))
    if "bare" in shown:
        out += answers.without(rows.without_analytic(), folds, {ABLATIONS["bare"]: plain})
    for name, options in (("few", replace(plain, trees=0.5 * plain.trees)), ("more", replace(plain, trees=2.0 * plain.trees)),
                          ("free", replace(plain, monotone=False)), ("way", replace(plain, way=False))):
        if name in shown:
            out += answers.without(rows, folds, {ABLATIONS[name]: options})
    return out


def _lines(data: Data, found: States, rows: Rows, pairs: Sequence[PairRow], folds: Array, own: Mapping[str, answers.Answers],
           pools: Sequence[pooled.Pool], of: Callable[[pooled.Pool], Model | None],
           models: Sequence[Model]) -> tuple[list[page.Line], dict[str, answers.Answers]]:
    """The rows of a split, and what is plotted."""
    today = answers.spread_about(page.THEN, answers.frozen(data, pairs), rows, folds)
    shown: list[tuple[answers.Answers, pooled.Score | None]] = [
        (answers.spread_about("constant 1x", np.zeros(len(rows)), rows, folds), None),
        (answers.spread_about("plain roofline", answers.roofline(found, pairs), rows, folds), None),
        (today, pooled.by_seconds({(m.program, m.device, sizes_text(m.sizes)): m.seconds for m in data.modelled})),
        (own["analytic"], pooled.by_seconds({k: s["t.total"] for k, s in found.plain.items()})),
        (own["code"], pooled.by_seconds({k: s["t.total"] for k, s in found.code.items()}))]
    learned = answers.asked("learned", models, rows, folds)
    shown += [(learned, pooled.by_model(of, found)), (answers.asked("learned, compiled", models, rows, folds, True), pooled.by_model(of, found, True))]
    lines = [page.Line(each.name, measures.figures(each, rows.measured, rows.fault), pooled.figures(pools, score) if score is not None else None)
             for each, score in shown]
    return lines, {each.name: each for each in (own["analytic"], learned)}


def _told(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def timing(data: Data, pairs: Sequence[PairRow], model: Path | None) -> page.Timing:
    """Milliseconds of a forecast (the median over some pairs, each asked again: the least of `TRIES`, as others take the processor meanwhile), of the first
    one, whose programs are not known yet (processor time), and of loading the model (the least of some)."""
    file = model or shipped()
    models: dict[str, Forecaster] = {"analytic": Analytic()}
    loading = math.nan
    if file.is_file():
        models["learned"] = Learned(file)
        loading = min(_seconds(lambda: Model.read(file)) for _ in range(5)) * 1e3
    chosen = [pairs[i] for i in range(0, len(pairs), max(1, len(pairs) // 40))]
    out, first = {}, {}
    for name, ask in models.items():
        taken, fresh = [], []
        for p in chosen:
            pair = Pair(parse_program(data.programs[p.before].text, p.before), parse_program(data.programs[p.after].text, p.after), dict(p.sizes),
                        target_of(p.device), p.step,
                        data.programs[p.after].surface)
            began = time.process_time()
            ask(pair)
            fresh.append(time.process_time() - began)
            taken.append(min(_seconds(partial(ask, pair)) for _ in range(TRIES)))
        out[name], first[name] = (float(np.median(each)) * 1e3 for each in (taken, fresh))
    return page.Timing(out, loading, first)


def _seconds(what: Callable[[], object]) -> float:
    began = time.perf_counter()
    what()
    return time.perf_counter() - began


def _left_out(data: Data, found: States, ended: str = "") -> list[str]:
    out = [f"The language model was asked no more: {ended}."] if ended else []
    if found.why:
        first = next(iter(found.why.values()))
        out.append(f"{len(found.why)} programs at some sizes have no features, and their pairs are left out: "
                   f"{first}, for example.")
    if count := sum(unsettled(data, p) for p in data.pairs):
        out.append(f"{count} pairs are left out, neither a failure nor a measurement: their later program was not compiled in the time that the host gave it, "
                   "or compiled in another part of the data, or is wrong at sizes that the facts of both programs exclude.")
    return out


def freeze(data: Data, folder: Path) -> None:
    """Keep what the cost model of the code at hand says of every measured program: the table `modelled`."""
    from kir.gate.cost import program_cost

    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False).stdout.strip()
    wanted = dict.fromkeys((p, row.device, sizes_text(row.sizes)) for row in data.pairs for p in (row.before, row.after))
    sizes_of = {sizes_text(row.sizes): row.sizes for row in data.pairs}
    programs = {p: parse_program(data.programs[p].text, p) for p in {p for p, _, _ in wanted}}
    out = []
    for p, device, at in wanted:
        try:
            costs = program_cost(programs[p], sizes_of[at], target_of(device), None, data.programs[p].surface)
        except (ArithmeticError, ValueError, TypeError):
            continue
        out.append({"device": device, "program": p, "sizes": sizes_of[at], "seconds": sum(c.seconds for c in costs), "model": commit})
    write({"modelled": out}, folder, command=f"python -m benchmarks.forecast freeze  # at {commit}")


if __name__ == "__main__":
    main()
