"""The learned model on rows whose truth is known: what is trained, calibrated, kept in a file, and refused."""
from __future__ import annotations

import math
import sys
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kir.base.diagnostic import KirError
from kir.learning.forecast import training
from kir.learning.forecast.model import CERTAIN, HINT, MAGIC, REFUSED, SCHEMA, Model, sided, slower
from kir.learning.forecast.scores import area
from kir.learning.forecast.training import Options, Rows, _shares, dealt, isotonic, train
from kir.learning.forecast.trees import Forest
from tests.kir.learning.forecast.made import NAMES, rows

pytestmark = pytest.mark.learning
QUICK = Options(trees=0.25)


@cache
def model(shaped: float = 0.0, calibrated: bool = True, way: bool = True) -> Model:
    return train(_known(), replace(QUICK, shaped=shaped, calibrated=calibrated, way=way), {"command": "test"})


def _known() -> Rows:
    all_ = rows()
    return all_.take(all_.family != "family 0")


def _unseen() -> Rows:
    all_ = rows()
    return all_.take((all_.family == "family 0") & np.isfinite(all_.measured))


def held(m: Model, at: Rows) -> float:
    """How many measurements the 80 % interval holds."""
    logs, _, _ = m.predict(at.seen, at.turned)
    low, high = (logs[:, m.levels.index(level)] for level in (0.1, 0.9))
    return float(((at.measured >= low) & (at.measured <= high)).mean())


def test_it_learns_what_the_analytic_model_lacks() -> None:
    at, m = _unseen(), model()
    wrong = np.abs(at.measured - m.predict(at.seen, at.turned)[0][:, m.levels.index(0.5)])
    assert np.median(wrong) < 0.5 * np.median(np.abs(at.measured - m.base(at.seen)))


def test_quantiles_rise_and_a_pair_turned_round_is_the_opposite() -> None:
    at, m = _unseen(), model()
    logs, fails, _ = m.predict(at.seen, at.turned)
    assert (np.diff(logs, axis=1) > 0).all() and ((fails >= 0) & (fails <= 1)).all()
    assert np.allclose(m.speed(at.seen, at.turned), -m.speed(at.turned, at.seen))
    assert np.allclose(m.speed(at.seen, at.seen), (2.0 + m.trust) / 3.0 * m.base(at.seen))


def test_which_is_faster_is_decided_by_the_forest_that_was_grown_for_it() -> None:
    at, m = _unseen(), model()
    said, plain = (each.predict(at.seen, at.turned)[0][:, m.levels.index(0.5)] for each in (m, model(way=False)))
    leaning = m.said(at.seen, at.turned)
    assert not len(model(way=False).way.roots)
    assert (np.sign(said) == np.sign(leaning[:, 0] + leaning[:, 2])).all() and (np.abs(said) >= HINT - 1e-9).all()
    assert np.mean(np.sign(said) == np.sign(at.measured)) >= np.mean(np.sign(plain) == np.sign(at.measured))


@given(st.lists(st.floats(-3, 3), min_size=5, max_size=5, unique=True), st.floats(0.01, 0.99), st.sampled_from((-1.0, 1.0)))
def test_a_distribution_gets_the_sides_that_it_is_given(quantiles: list[float], below: float, side: float) -> None:
    """Quantiles rise still, the median lies on the side that is said, and where that is the likelier one, 0 lies where its probability is."""
    levels, logs = np.array([0.05, 0.25, 0.5, 0.75, 0.95]), np.sort(np.array([quantiles]))
    found = sided(logs, levels, np.array([below]), np.array([side]))[0]
    assert (np.diff(found) > 0).all() and side * found[2] >= HINT - 1e-9
    if (below < 0.5) == (side > 0):
        assert all(value <= 1e-8 for value, level in zip(found, levels, strict=True) if level <= below - 1e-9 and logs[0, 0] < 0.0)
        assert all(value >= -1e-8 for value, level in zip(found, levels, strict=True) if level >= below + 1e-9 and logs[0, -1] > 0.0)


def test_how_sure_a_side_is_adds_up_with_the_mirror_image() -> None:
    leaning = np.array([-1.0, -0.02, 0.0, 0.3])
    found = slower(leaning, (0.4, 1.8))
    assert np.allclose(found + slower(-leaning, (0.4, 1.8)), 1.0) and (np.diff(found) < 0).all() and found[2] == 0.5


def test_calibration_brings_intervals_to_what_they_promise() -> None:
    at = _unseen()
    assert 0.7 <= held(model(), at) <= 0.9
    assert abs(held(model(), at) - 0.8) < abs(held(model(calibrated=False), at) - 0.8)


def test_it_is_wide_where_errors_are_wide() -> None:
    at, m = _unseen(), model()
    logs, _, _ = m.predict(at.seen, at.turned)
    width = logs[:, m.levels.index(0.9)] - logs[:, m.levels.index(0.1)]
    noisy = at.seen[:, NAMES.index("share t.dram")] > 0
    assert np.median(width[noisy]) > 2 * np.median(width[~noisy])


def test_failures_are_told() -> None:
    all_ = rows()
    at = all_.take(all_.family == "family 0")
    assert area(model().failing(at.seen).tolist(), at.fault.tolist()) > 0.95


def test_less_of_a_resource_never_hurts() -> None:
    at, m = _unseen(), model()
    for name in ("log t.dram", "log t.total"):
        better, worse = at.seen.copy(), at.turned.copy()
        better[:, NAMES.index(name)] += 1.0
        worse[:, NAMES.index(name)] -= 1.0
        assert (m.speed(better, worse) >= m.speed(at.seen, at.turned) - 1e-6).all()
    over = at.seen.copy()
    over[:, NAMES.index("limit shared")] += 0.5
    assert (m.failing(over) >= m.failing(at.seen) - 1e-9).all()


def test_shaping_changes_widths_alone() -> None:
    at, plain, shaped = _unseen(), model(), model(shaped=1.0)
    assert np.allclose(plain.speed(at.seen, at.turned), shaped.speed(at.seen, at.turned))
    assert not np.allclose(plain.predict(at.seen, at.turned)[0], shaped.predict(at.seen, at.turned)[0])
    assert shaped.about["shaped"] == 1.0


def test_a_seed_makes_one_model() -> None:
    small = _known().take(np.arange(200))
    once, again, other = (train(small, Options(seed, trees=0.05)).packed() for seed in (1, 1, 2))
    assert once == again != other


def test_without_analytic_terms_nothing_of_them_is_seen() -> None:
    bare = _known().without_analytic()
    assert bare.names == ("log n.For", "log s.spills", "mix n.For", "mix n.Let") and bare.used == 2
    m = train(bare, Options(trees=0.05))
    assert m.trust == 0.0 and (m.base(bare.seen) == 0).all()


def test_speedups_are_told_by_the_features_that_gain_and_failures_by_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(training, "SELECTED", 2)
    known = _known()
    m = train(known, replace(QUICK, trees=0.1))
    assert {"log t.total", "log t.dram"} <= set(m.names[:m.used]) and m.used <= 3 and "limit shared" not in m.names[:m.used]
    assert set(m.names[:m.fail.width]) == set(known.names[:known.used])
    assert {"share t.dram", "at t.total", "mix n.For", "mix n.Let"} < set(m.names)
    at = _unseen().named(m.names, m.used)
    assert np.isfinite(m.predict(at.seen, at.turned)[0]).all() and m.packed() == train(_known(), replace(QUICK, trees=0.1)).packed()
    unlimited = at.seen.copy()
    unlimited[:, m.names.index("limit shared")] = 0.0
    assert (m.failing(at.seen) > m.failing(unlimited)).any(), "a feature that speedups are not told by"


def test_what_lies_far_off_is_known_to() -> None:
    at, m = _unseen(), model()
    odd = at.seen.copy()
    odd[:, [i for i, name in enumerate(NAMES) if name.startswith("mix ")]] += 20.0
    assert (m.distance(odd) > m.far).all() and (m.distance(at.seen) > m.far).mean() < 0.1


@given(st.lists(st.sampled_from("abcdefgh"), min_size=1, max_size=60), st.integers(1, 8))
def test_a_split_never_shares_a_family(names: list[str], parts: int) -> None:
    family = np.array(names, dtype=object)
    found = dealt(family, parts)
    assert all(len({int(f) for f, name in zip(found, names, strict=True) if name == each}) == 1 for each in set(names))
    assert found.tolist() == dealt(family, parts).tolist() and found.max() < parts


@settings(max_examples=30)
@given(st.lists(st.tuples(st.floats(-3, 3), st.booleans()), min_size=2, max_size=200))
def test_isotonic_rates_rise(pairs: list[tuple[float, bool]]) -> None:
    values, happened = (np.array(x, dtype=float) for x in zip(*pairs, strict=True))
    odds, rates = isotonic(values, happened, np.ones(len(values)))
    assert list(rates) == sorted(rates) and list(odds) == sorted(odds) and all(0 < r < 1 for r in rates)


def test_a_forest_says_what_lightgbm_says() -> None:
    r = np.random.default_rng(0)
    x = r.normal(size=(800, 6))
    x[r.random(x.shape) < 0.1] = np.nan
    x[:, 5] = np.nan_to_num(x[:, 5])
    import lightgbm

    grown = lightgbm.train({"objective": "regression", "verbosity": -1, "num_threads": 1}, lightgbm.Dataset(x, np.nansum(x, axis=1)), 20)
    x[:40, 5] = np.nan  # missing where nothing was in training
    forest = Forest.of(grown.dump_model(), 6)
    assert np.allclose(forest(x), grown.predict(x), atol=1e-5)
    again, end = Forest.read(forest.sizes(), forest.packed(), 0)
    assert end == len(forest.packed()) and np.array_equal(again(x), forest(x))


def test_a_split_by_kinds_is_refused() -> None:
    with pytest.raises(ValueError, match="a split by =="):
        Forest.of({"tree_info": [{"tree_structure": {"split_feature": 0, "decision_type": "==", "threshold": "1"}}]}, 1)


def test_a_file_comes_back(tmp_path: Path) -> None:
    at, m = _unseen(), model()
    m.write(tmp_path / "m")
    again = Model.read(tmp_path / "m", "d" * 64)
    assert again.about == m.about and again.names == m.names
    for one, other in zip(again.predict(at.seen, at.turned), m.predict(at.seen, at.turned), strict=True):
        assert np.allclose(one, other, atol=1e-5)
    assert again.packed() == m.packed()


def refusal(path: Path, data: str = "") -> str:
    with pytest.raises(KirError, match="KIR-E005") as bad:
        Model.read(path, data)
    return bad.value.diagnostics[0].message


def test_a_file_that_does_not_fit(tmp_path: Path) -> None:
    path, content = tmp_path / "m", model().packed()
    assert "cannot be read" in refusal(path)
    path.write_bytes(content[:len(content) // 2])
    assert "cut short" in refusal(path)
    path.write_bytes(content.replace(MAGIC + b"%d" % SCHEMA, MAGIC + b"0", 1))
    assert "has schema 0" in refusal(path)
    path.write_bytes(b"something else")
    assert "no model" in refusal(path)
    path.write_bytes(content)
    assert "trained on data dddddddddddd" in refusal(path, "e" * 64)


def test_without_lightgbm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "lightgbm", None)
    with pytest.raises(KirError, match="KIR-E006"):
        train(_known(), QUICK)


def test_nothing_failed_is_a_small_chance_that_something_does() -> None:
    all_ = _known()
    at = all_.take(np.isfinite(all_.measured))
    m = train(at, Options(trees=0.02))
    assert 0 < float(m.failing(at.seen)[0]) < 0.05 and math.isfinite(m.far)


def test_one_family_is_too_few() -> None:
    with pytest.raises(KirError, match="KIR-E011"):
        train(_unseen(), QUICK)


def test_what_does_not_hold_on_families_left_out_counts_less() -> None:
    """The analytic model is right of all, and forests of what is noise in each family count nothing; where they are right everywhere they are kept."""
    r = np.random.default_rng(0)
    base, noise = r.normal(size=400) * 0.3, r.normal(size=400) * 0.3
    weights = np.ones(400)
    assert _shares(np.column_stack([base, noise, noise]), base, weights) == (1.0, 0.0, 0.0)
    trust, much, way = _shares(np.column_stack([0.0 * base, noise, noise]), noise, weights)
    assert (trust, much) == (0.0, 1.0) and way > 0.0


def test_what_is_refused_before_compiling_is_sure_to_fail() -> None:
    m = train(_known(), Options(trees=0.05))
    names = (*m.names, *(x for x in REFUSED if x not in m.names))
    wide = replace(m, names=names)
    rows = np.zeros((3, len(names)))
    rows[1, names.index(REFUSED[0])] = rows[2, names.index(REFUSED[1])] = 1.0
    found = wide.failing(rows)
    assert found[0] < 0.9 and found[1] >= CERTAIN and found[2] >= CERTAIN
