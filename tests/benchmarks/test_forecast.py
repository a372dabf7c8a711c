"""The figures of forecasts: measures on answers that are known, pools, splits, the page."""
from __future__ import annotations

import argparse
import json
import math
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.forecast import answers, failures, fresh, heuristics, limits, measures, noise, page, pools, tried, ways
from benchmarks.forecast.__main__ import DATA as DATA_FOLDER
from benchmarks.forecast.__main__ import ablated, analytic
from benchmarks.forecast.points import DATA, standings, written
from kir.base.diagnostic import KirError
from kir.ir.parser import parse_program
from kir.ir.printer import program_text
from kir.learning.forecast import Forecast
from kir.learning.forecast.data import CompiledRow, Data, MeasuredRow, PairRow, ProgramRow, read, write
from kir.learning.forecast.learned import shipped
from kir.learning.forecast.matrices import drawn_of, rows_of, states, unsettled
from kir.learning.forecast.training import LEVELS, TREES, Options, dealt
from tests.kir.learning.forecast.made import NAMES, USED, copying, rows

SURE = np.array([math.log(2.0), math.log(0.6), 0.0, math.log(1.02), math.log(1.3)])
"""Effects: three beyond 3 %, of which two are between 0.5x and 2x."""


def exact(middle: np.ndarray, wide: float = 0.01) -> answers.Answers:
    return answers.Answers("x", middle[:, None] + wide * np.linspace(-1, 1, len(LEVELS))[None, :])


def test_right_signs_are_counted_beyond_three_percent() -> None:
    no = np.zeros(5, bool)
    best = measures.figures(exact(SURE), SURE, no)
    assert best.sign == (1.0, 3) and best.sign_near == (1.0, 2) and best.pairs == 5 and best.score < 0.05
    assert measures.figures(exact(-SURE), SURE, no).sign == (0.0, 3)
    assert measures.figures(exact(0 * SURE), SURE, no).sign == (0.0, 3)  # "no effect" is no sign
    assert math.isnan(best.area) and math.isnan(best.deferred)


def test_intervals_hold_what_they_hold() -> None:
    r = np.random.default_rng(0)
    truth = r.normal(size=4000)
    from statistics import NormalDist
    normal = answers.Answers("normal", np.tile([NormalDist().inv_cdf(q) for q in LEVELS], (4000, 1)))
    found = measures.figures(normal, truth, np.zeros(4000, bool))
    assert found.held == pytest.approx(0.8, abs=0.02) and found.error < 0.03
    assert all(abs(level - share) < 0.03 for level, share in measures.coverage(normal, truth))
    assert all(abs(sure - right) < 0.08 for sure, right, _ in measures.reliability(normal, truth))


def test_bins_of_many_are_the_forecasts_own() -> None:
    found = exact(SURE, 0.5)
    for row, bins in zip(found.logs, found.bins(), strict=True):
        assert Forecast(LEVELS, tuple(row)).bins == pytest.approx(tuple(bins), abs=0.011)  # one of both has mass below its first level
        assert bins.sum() == pytest.approx(1.0)
    assert np.exp(found.quantile(0.33)[0]) == pytest.approx(Forecast(LEVELS, tuple(found.logs[0])).quantile(0.33))


def test_models_of_one_number_get_the_spread_of_other_parts() -> None:
    at = rows()
    folds = dealt(at.family, 4)
    found = answers.spread_about("1x", np.zeros(len(at)), at, folds)
    inside = [found.logs[folds == f][0] for f in range(4)]
    for f in range(4):
        rest = at.measured[(folds != f) & np.isfinite(at.measured)]
        assert np.allclose(inside[f], np.quantile(rest, LEVELS))


@pytest.mark.learning
def test_other_ways_learn_errors_that_a_feature_tells_and_see_no_part_that_they_are_asked_of(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ways, "LEAVES", 40)
    monkeypatch.setattr(ways, "ROUNDS", 30)
    monkeypatch.setitem(TREES, "way", 40)
    monkeypatch.setitem(TREES, "location", 40)
    at = rows(each=60)
    count, folds, there = len(at), dealt(at.family, 3), np.isfinite(at.measured)
    seconds = np.concatenate([math.log(2.0) * at.seen[:, 0], np.zeros(count)])  # a pair is of a program of its own and one of a second
    programs = ways.Programs(np.concatenate([at.seen[:, :3], np.zeros((count, 3))]), seconds, np.r_[:count, :9], np.r_[count:2 * count, count:count + 9])
    asked = ways.Asked(at, folds, programs, at.measured[:9], folds[:9])
    moved = at.measured + 5.0 * (folds == 2)
    spoiled = replace(asked, rows=replace(at, measured=moved), drawn=moved[:9])
    tasks = [(0, name, out) for out in ways.outs(folds) for name in ways.STACKED]
    both = [ways.members(tasks, [each]) for each in (asked, spoiled)]
    alone = ways.seconds(asked)[1]
    assert np.array_equal((alone[:count] - alone[count:])[folds == 1], both[0][0, "ranked", frozenset((1,))][folds == 1])
    base = np.abs(math.log(2.0) * at.seen[:, 0] - at.measured)[there].mean()
    for name in (*ways.STACKED, "stacked"):
        found, again = ((ways.stacked("x", each, made) if name == "stacked" else ways.told(name, "x", each, made))
                        for each, made in zip((asked, spoiled), both, strict=True))
        assert np.abs(found.median - at.measured)[there].mean() < 0.85 * base, name
        assert np.array_equal(again.logs[folds == 2], found.logs[folds == 2]) and not np.array_equal(again.logs[folds == 1], found.logs[folds == 1]), name
    effects = np.abs(np.nan_to_num(at.measured)) > math.log(1.03)
    pairs = [PairRow("h200", "g", "s", {"N": 1}, "a", "b", "mma@main", "walk", "x", speedup=math.exp(y)) for y in at.measured]
    shown = tried.Tried([replace(exact(0.0 * seconds[:count]), name=page.THEN), replace(exact(seconds[:count]), name="analytic"),
                         replace(exact(at.measured), name=tried.STACKED)], {"families of kernels": at.measured}, 0.5)
    text = "\n".join(tried.text(Data({"b": ProgramRow("b", "", "cuda", "x")}, {}, [], [], pairs), at, pairs, shown))
    assert "| families of kernels | 100.0 % | 100.0 % |" in text and f"| 3 % | {int(effects.sum())} | " in text and "| below the analytic model's |" in text


def test_every_opcode_is_a_feature_of_what_was_compiled() -> None:
    at = rows(families=2, each=2)
    pairs = [PairRow("h200", "g", "s", {}, "a", after, "", "walk", "x", speedup=1.0) for after in ("b", "b", "c", "c")]
    data = Data({name: ProgramRow(name, "", "cuda", "x") for name in "abc"},
                {(name, "sm_90a"): CompiledRow(name, "sm_90a", True, "", ({"kernel": "k", "mix": mix},)) for name, mix in (
                    ("a", {"FFMA": 7, "LDG": 1}), ("b", {"FFMA": 3}))}, [], [], pairs)
    made = ways.every_opcode(at, pairs, data)
    assert made.names == (*NAMES[:USED], "log s.op FFMA", "log s.op LDG", *NAMES[USED:]) and made.used == USED + 2
    assert made.seen_code[0, USED:USED + 2].tolist() == [1.0, 1.0] and made.turned_code[0, USED:USED + 2].tolist() == [-1.0, -1.0]
    assert np.isnan(made.seen_code[2, USED:USED + 2]).all() and np.isnan(made.seen[:, USED:USED + 2]).all()  # one that was not compiled has none


@pytest.mark.learning
def test_a_model_is_asked_about_what_it_has_not_seen() -> None:
    at = rows(each=60)
    folds = dealt(at.family, 3)
    found, models = answers.learned(at, folds, {"learned": Options(trees=0.05)}, lambda text: None)["learned"]
    assert len(models) == 3 and np.isfinite(found.logs).all() and found.fails is not None
    own = models[1].predict(at.seen[folds == 1], at.turned[folds == 1])[0]
    assert np.allclose(found.logs[folds == 1], own)
    assert not (set(at.family[folds == 1].tolist()) & set(at.family[folds != 1].tolist()))


@pytest.mark.learning
def test_models_are_the_same_in_any_number_of_processes_and_when_they_were_kept(tmp_path: Path) -> None:
    at, told = rows(each=40), list[str]()
    fits = answers.without(at, dealt(at.family, 2), {"learned": Options(trees=0.02)})
    one, many = (answers.fit(fits, jobs, told.append) for jobs in (1, 2))
    first, again = (answers.fit(fits, 1, told.append, tmp_path) for _ in range(2))
    assert len({tuple(m["learned"].packed() for m in made) for made in (one, many, first, again)}) == 1
    assert len(told) == 6  # what was kept is not trained again, but where anything differs
    other = answers.without(replace(at, measured=at.measured + 0.1), dealt(at.family, 2), {"learned": Options(trees=0.02)})
    answers.fit(other, 1, told.append, tmp_path)
    assert len(told) == 8


def test_the_sign_of_an_effect_comes_again_or_not() -> None:
    same: dict[str, Any] = {"shape": "s", "sizes": {"N": 1}, "after": "b", "step": "", "source": "walk", "family": "x"}
    told = [("h200", "g", "a", 1.2, 1.1, 1.3), ("h200", "g/again", "a", 1.1, 0.9, 1.2), ("h100-sxm", "g", "a", 0.9, 0.8, 0.95),
            ("h200", "g", "c", 3.0, 2.9, 3.1)]
    pairs = [PairRow(device=device, group=group, before=before, speedup=s, low=low, high=high, speedup_cold=s, **same) for device, group, before, s, low,
             high in told]
    twice = {"g": (1.0, 2.0, 4.0), "g/again": (1.0, 2.1, 1.9), "h": (1.0,)}
    measured = [MeasuredRow("h200", g, name, "s", {"N": 1}, warm=warm) for g, times in twice.items() for name, warm in zip("abc", times, strict=False)]
    again, two, other, cold, sure = noise.repeats(Data({}, {}, [], measured, pairs))
    assert two.sign[1] == 6 and two.sign[0] == pytest.approx(4 / 6) and two.sign_near[1] == 2  # b and c changed places
    assert again.sign == (1.0, 2) and other.sign == (0.0, 2) and cold.sign == (1.0, 4) and sure.sign == (0.75, 4) and sure.sign_near[1] == 3
    said = "\n".join(noise.lines([again, two, other, cold, sure]))
    assert "| on another device | 0.0 % of 2 | 0.0 % of 2 | - |" in said and "| 100.0 % of 2 | 100.0 % of 2 | 100.0 % |" in said and "| 78.9 % |" in said


def test_a_forecast_that_knew_the_truth_is_right_as_often_as_one_measurement() -> None:
    assert noise.known(1.0) == 1.0 and noise.known(0.82) == pytest.approx(0.9) and math.isnan(noise.known(0.4))  # .9 * .9 + .1 * .1
    one: dict[str, Any] = {"device": "h200", "shape": "s", "sizes": {}, "after": "b", "step": "", "source": "walk", "family": "x"}
    pairs = [PairRow(group=g, before=b, speedup=s, **one) for b, twice in {"a": (1.04, 0.98), "c": (1.04, 1.04), "d": (2.0, 2.0), "e": (1.04, 1.04),
                                                                          "f": (1.04, 1.04)}.items() for g, s in zip(("g", "h"), twice, strict=True)]
    small, *_, large = noise.by_size(pairs)
    assert small.sign[0] == pytest.approx(6 / 7) and small.sign[1] == 7 and small.what == "3 % to 5 %" and large.sign == (1.0, 2)
    assert noise.ceiling(pairs) == pytest.approx((7 * noise.known(6 / 7) + 2) / 9)  # 0.98 is no effect beyond 3 %


def test_what_no_forecast_can_do_better_and_where_signs_are_wrong() -> None:
    at = rows()
    some = at.take(np.flatnonzero(np.isfinite(at.measured))[:60])
    steps = ["", "mma@main", "~mma{a=1}@main"]
    pairs = [PairRow("h200", f"g{i % 2}", "s", {"N": i // 2}, "a", "b", steps[i % 3], "walk", "x", speedup=math.exp(y)) for i, y in enumerate(some.measured)]
    once, again = limits.repeated(pairs)
    assert len(once) == 30 and all(pairs[i].sizes == pairs[j].sizes and pairs[i].group != pairs[j].group for i, j in zip(once, again, strict=True))
    best = exact(some.measured)
    said = limits.lines(some, pairs, best)
    assert len(said) == 3 and "30 pairs were measured again" in said[2]
    told = limits.of_scores(some.measured, exact(0 * some.measured, 1.0), exact(-some.measured))[0]
    assert "if the middle of each of its distributions were the measurement" in told and "0.00" in told.rpartition(" have ")[2]
    assert measures.ranked(best, some.measured).mean() == pytest.approx(measures.figures(best, some.measured, some.fault).score)
    vague = exact(some.measured, 30.0)
    known, unknown = limits.sure([best, vague], some.measured)[2:]
    assert " | 100.0 % | 100.0 % | - |" in known and unknown == "| x | 0.0 % | - | 0.0 % | - | 100.0 % |"
    data = Data({"b": ProgramRow("b", "", "cuda", "x")}, {}, [], [], pairs)
    shown = "\n".join(limits.wrong(some, pairs, data, {"analytic": exact(-some.measured), "learned": best}))
    assert "| `mma` | " in shown and "| cuda, walk | " in shown and "| 0.0 % | 100.0 % | 0 |" in shown and "| h200 | " in shown
    small = limits.larger(np.array([0.04, 0.04, 0.3, 2.0]), {"analytic": np.array([True, False, True, True]), "learned": np.array([False, False, True, False])})
    assert small[2] == "| 3 % | 4 | 75.0 % | 25.0 % | 0.0 % |" and small[3] == "| 5 % | 2 | 100.0 % | 50.0 % | 66.7 % |"


@pytest.mark.parametrize(("fault", "ok", "said", "left"), [
    ("compile", True, "", True), ("compile", False, "TimeoutError: not made in 170 s", True), ("compile", False, "KIR-B010: refused", False),
    ("launch", True, "", False), ("", True, "", False)])
def test_failures_that_the_data_contradict_count_as_nothing(fault: str, ok: bool, said: str, left: bool) -> None:
    pair = PairRow("h200", "g", "s", {}, "a", "b", "", "walk", "x", math.nan if fault else 1.0, fault=fault)
    assert unsettled(Data({}, {("b", "sm_90a"): CompiledRow("b", "sm_90a", ok, said)}, [], [], [pair]), pair) == left
    assert not unsettled(Data({}, {}, [], [], [pair]), pair)


@pytest.mark.parametrize(("fault", "size", "left"), [("wrong", 5, True), ("wrong", 128, False), ("", 5, False)])
def test_what_is_wrong_where_no_program_promises_anything_counts_as_nothing(fault: str, size: int, left: bool) -> None:
    text = program_text(copying()).replace("\nkernel ", "\n  fact N % 128 == 0\nkernel ", 1)
    rows_ = {name: ProgramRow(name, text, "cuda", "x") for name in "ab"}
    pair = PairRow("h200", "g", "s", {"N": size}, "a", "b", "", "walk", "x", math.nan if fault else 1.0, fault=fault)
    assert unsettled(Data(rows_, {}, [], [], [pair]), pair) == left
    one = {**rows_, "a": ProgramRow("a", program_text(copying()), "cuda", "x")}
    assert not unsettled(Data(one, {}, [], [], [pair]), pair)  # the step itself took the sizes away


def test_pools_by_a_perfect_and_a_perverse_score() -> None:
    seconds = (*tuple(1.0 + i / 10 for i in range(19)), math.inf)
    pool = pools.Pool("gemm", "h200", "{}", "cuda", tuple(f"p{i:02}" for i in range(20)), seconds)
    best = pools.figures([pool], lambda p: ([-s for s in p.seconds], [0.0] * 20))
    assert (best.ordered, best.first[0], best.four[0], best.drawn) == (1.0, 1.0, 1.0, 1.0) and math.isnan(best.first[1])
    worst = pools.figures([pool], lambda p: (list(p.seconds), [0.0] * 20))
    assert worst.ordered == 0.0 and worst.first[0] == 0.0 and worst.drawn < worst.at_random < 1.0
    wary = pools.figures([pool], lambda p: ([-s for s in p.seconds], [0.9] + [0.0] * 19))
    assert wary.ordered == 1.0 and wary.first[0] == pytest.approx(1.0 / 1.1) and wary.four[0] == pytest.approx(1.0 / 1.1)  # what likely fails is not chosen


def test_data_become_rows_pools_and_a_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pyarrow")
    programs = {f"{family}{t}": copying(t, k) for k, family in ((1, "once"), (3, "thrice")) for t in (32, 64, 128, 256)}
    pairs = [{"device": "h200", "group": name[:3], "shape": "s", "sizes": {"N": 1 << 20}, "before": name, "after": other, "step": "", "source": "walk",
              "family": name[:4],
              "speedup": 1.1} for name in programs for other in programs if name[:4] == other[:4] and name != other]
    pairs.append({**pairs[0], "sizes": {"N": 0}})
    measured = [{"device": "h200", "group": name[:3], "program": name, "shape": "s", "sizes": {"N": 1 << 20}, "warm": 1e-5} for name in programs]
    write({"programs": [{"program": n, "text": program_text(p), "surface": "cuda", "family": n[:4], "problem": "copy"} for n, p in programs.items()],
           "pairs": pairs,
           "measured": measured}, tmp_path)
    data = read(tmp_path)
    found = states(data, tmp_path / "cache")
    assert next(iter(found.why.values())).startswith("KIR-E007")
    made, kept = rows_of(data, found)
    assert len(made) == len(kept) == 24 and made.names[:made.used] == tuple(n for n in made.names if not n.startswith("mix "))
    again, _ = rows_of(data, states(data, tmp_path / "cache"), (made.names[::-1], 3))
    assert np.array_equal(made.seen[:, ::-1], again.seen) and again.used == 3
    drawn, of_drawn = drawn_of(data, found, made)
    assert drawn.names == made.names and not drawn.fault.any() and all(p.before[:4] == p.after[:4] and not p.step for p in of_drawn)
    assert len(drawn) == len({(p.before, p.after) for p in of_drawn}) and 0 < len(drawn) <= 2 * 8  # no more than two for each program
    assert answers.parts_of(drawn, of_drawn, made, kept, np.array([int(f != "once") for f in made.family]), "family").tolist() == [
        int(p.family != "once") for p in of_drawn]
    assert {name: sorted(set(parts.tolist())) for name, parts in answers.nearer(made, kept, data).items()}["kernels, others of their families seen"] == [0]
    assert failures.classes(found, kept)["anything else"] == (0, 24) and len(failures.lines(failures.classes(found, kept))) == 6
    assert not pools.pools(data, found)  # four programs are no pool
    assert "| analytic | 24 |" in (alone := "\n".join(analytic(data, found))) and "No pool of candidates" in alone
    lines = {"family": [page.Line(name, measures.figures(answers.analytic(found, kept), made.measured, made.fault)) for name in ("analytic", "learned")]}
    text = page.page(data, lines, page.Timing({"analytic": 1.0}, 2.0), ["a note"], beside=["| NVIDIA's heuristics |"])
    assert "### What was asked" in text and "| ranked probability score below that of the analytic model alone | 30 % | 0.0 % | - | 0.0 % | - |" in text
    assert "### Beside NVIDIA's heuristics for GEMM\n\n| NVIDIA's heuristics |" in text
    assert "| analytic | 24 |" in text and "Not run: the data hold one device only" in text and "- a note" in text
    monkeypatch.setattr(answers, "fit", lambda fits, *_: [dict.fromkeys(each.options) for each in fits])  # too few rows to train on
    monkeypatch.setattr(answers, "asked", lambda name, *_: replace(answers.analytic(found, kept), name=name))
    told = ablated(data, found, made, kept, argparse.Namespace(seed=0, shaped=0.0, jobs=1, cache=tmp_path, ablations="few,uncalibrated"))
    assert re.findall(r"(?m)^\| (learned.*?) \| 24 \|", told) == ["learned", "learned, not calibrated", "learned, half the trees"]


def test_kernels_measured_after_training_are_asked_of_the_model_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pyarrow")
    assert not fresh.lines(tmp_path / "m.model", DATA_FOLDER, tmp_path)  # no data, nothing to say
    programs = {name: copying(t) for name, t in (("a", 32), ("b", 128))}
    pair = {"device": "h200", "group": "package/some/copy", "shape": "s", "sizes": {"N": 1 << 20}, "before": "a", "after": "b", "step": "", "source": "package",
            "family": "copy", "speedup": 1.2}
    write({"programs": [{"program": n, "text": program_text(p), "surface": "cuda", "family": "copy"} for n, p in programs.items()],
           "pairs": [pair, {**pair, "device": "h100-sxm"}], "measured": []}, tmp_path)
    monkeypatch.setattr(fresh, "FOLDER", tmp_path)
    monkeypatch.setattr(fresh, "LINEAGES", tmp_path)
    told = fresh.page_of(shipped(), DATA_FOLDER)
    assert "2 pairs of 1 kernels that" in told and "(some 1; 1 families)" in told and "| learned | 2 |" in told and "| cuda | 1 | 2 |" in told
    said = fresh.intervals([exact(np.array([0.1, 0.2, -0.3, 0.0]))], np.array([0.1, 0.1, 0.1, 0.1]), ["a", "a", "b", "c"], ["cuda"] * 4)
    assert said[2] == said[3].replace("cuda", "all") == "| all | 3 | 4 | 50.0 % (0 to 100) |"
    assert told.startswith("# Forecasts of kernels") and told.endswith("younger than the data.\n\n")
    (tmp_path / "old").mkdir()
    write({"programs": [], "pairs": []}, tmp_path / "old")
    with pytest.raises(KirError, match="KIR-E005"):
        fresh.lines(shipped(), tmp_path / "old", tmp_path)


def test_measured_lineages_are_counted_by_what_their_reports_hold(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert fresh.reports(tmp_path) == []
    for name in ("gemm_sm90", "softmax_triton"):  # of the second nothing was measured
        (tmp_path / name).symlink_to(fresh.LINEAGES / name)
    monkeypatch.setattr(fresh, "steps_of", lambda lineage, folder, show: ())
    monkeypatch.setattr(fresh, "inside_of", lambda steps: (3, 4))
    assert fresh.reports(tmp_path)[2:] == ["| `gemm_sm90` | 4 | 3 | 75.0 % |", "| all | 4 | 3 | 75.0 % |"]


def test_a_plot_is_svg() -> None:
    import xml.etree.ElementTree as tree

    made = page.square("T", "x", "y", {"one": [(0.0, 0.1), (1.0, 0.9)], "none": []})
    assert tree.fromstring(made).tag.endswith("svg") and made.count("<circle") == 2


CONFIGURATIONS = {
    "tiles of a CTA": ("grid (m: 32, n: 16) threads 256", """fragment acc: f32[128, 256] = 0.0
  for k in 0..64 pipelined {stages=4}
    mma acc += A[m * 128 +: 128, k * 64 +: 64] * B[k * 64 +: 64, n * 256 +: 256] via wgmma""",
                       heuristics.Configuration((128, 256, 64), (128, 256, 64), (64, 256, 16), 4, 512, (1, 1))),
    "warpgroups, a ring and a cluster": ("grid (m: M, n: M) threads 256 cluster (2, 1)", """shared As: f16[3, 128, 64]
  shared Bs: f16[3, 64, 128]
  for wg in 0..2 parallel warpgroup
    fragment acc: f32[64, 128] = 0.0
    for k in 0..64
      mma acc += As[k % 3, wg * 64 +: 64, 0 +: 64] * Bs[k % 3, 0 +: 64, 0 +: 128] via wgmma""",
                                         heuristics.Configuration((128, 128, 64), (64, 128, 64), (64, 128, 16), 3, 1, (2, 1))),
    "parts of K": ("grid (m: M, part: 8) threads 128", """fragment acc: f32[64, 64] = 0.0
  for k in 0..8
    mma acc += A[m * 64 +: 64, part * 256 + k * 32 +: 32] * B[part * 256 + k * 32 +: 32, 0 +: 64]""",
                   heuristics.Configuration((64, 64, 32), (64, 64, 32), (16, 8, 16), 1, 8, (1, 1))),
    "no product of tiles": ("grid (m: M) threads 32", "let x = A[m, 0 +: 64]", None),
}


@pytest.mark.parametrize("what", CONFIGURATIONS)
def test_what_cutlass_would_call_a_program(what: str) -> None:
    head, body, wanted = CONFIGURATIONS[what]
    params = "\n  ".join(["size M: i32", *(f"{role}: f16[4096, 4096]" for role in ("in A", "in B", "out C"))])
    p = parse_program(f"kir 1\nprogram p\n  {params}\nkernel main {head}\n  {body}\n", "p.kir")
    assert heuristics.configuration(p) == wanted


def test_pools_are_cut_to_what_is_rated() -> None:
    pool = pools.Pool("gemm", "h200", "{}", "cuda", tuple("abcdefghij"), tuple(float(i) for i in range(1, 11)))
    kept = heuristics.alone([pool], {(p, "h200", "{}"): 1.0 for p in "abcdefgh"})
    assert [k.programs for k in kept] == [tuple("abcdefgh")] and kept[0].seconds == pool.seconds[:8]
    assert not heuristics.alone([pool], {(p, "h200", "{}"): 1.0 for p in "abc"})
    assert "not installed" in heuristics.lines([], Data({}, {}, [], [], [], [], ""), {})[0]


def test_the_cost_models_first_is_near_the_fastest_of_measured_points() -> None:
    few, many = standings([18, 1], every=8)
    assert few.loss < 1.1 and many.loss < 1.1 and few.of >= 7 and many.of >= 4


def test_the_file_of_points_is_what_its_command_writes() -> None:
    data = json.loads(DATA.read_text())
    assert json.loads(written(data)) == data and all(0 <= point < len(data["points"]) for row in data["rows"] for point, _ in row["microseconds"])
