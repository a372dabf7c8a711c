"""What a shadow finds of accesses within CTAs, beside what its definition says, one access at a time: short ways change nothing."""
from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from kir.interp.state.clocks import ORDERED, Clocks
from kir.interp.state.shadow import LEAST_RUN, Crowd, Run, Shadow, run_of

ROWS, AGENTS, GRANULES = 2, 4, 6
EVENT = st.tuples(st.sampled_from(["read", "read", "write", "write", "barrier", "step"]), st.integers(0, ROWS - 1),
                  st.lists(st.tuples(st.integers(0, AGENTS - 1), st.integers(0, GRANULES - 1)), min_size=1, max_size=5))


@settings(max_examples=200, deadline=None)
@given(st.lists(EVENT, min_size=1, max_size=25))
def test_a_shadow_says_what_one_access_after_the_other_does(events: list[tuple[str, int, list[tuple[int, int]]]]) -> None:
    """Granules of a CTA are its own; agents step, access, and meet at barriers at which some of them learn of the others."""
    clocks = Clocks(np.arange(ROWS), 2, AGENTS)
    clocks.block(("all",), AGENTS - 1, "thread")
    for a in range(AGENTS):
        clocks.know[:, :, a, a] = 1
    reads, shadow = Crowd(ROWS * GRANULES), Shadow(ROWS * GRANULES)
    read: dict[tuple[int, int], int] = {}
    written: dict[int, tuple[int, int]] = {}
    for what, row, places in events:
        agent, g = np.array([a for a, _ in places]), np.array([row * GRANULES + x for _, x in places])
        rows = np.full(len(g), row)
        know, now = clocks.know[ORDERED, row], clocks.now(rows, agent)
        if what == "step":
            for a in set(agent.tolist()):
                clocks.know[:, row, a, a] += 1
        elif what == "barrier":
            met = sorted(set(agent.tolist()))
            clocks.know[:, row, met] = clocks.know[:, row, met].max(axis=1, keepdims=True)
            for a in met:
                clocks.know[:, row, a, a] += 1
        else:
            late = [x in written and written[x][0] != a and know[a, written[x][0]] < written[x][1] for a, x in zip(agent.tolist(), g.tolist(), strict=True)]
            assert (shadow.after_write(g, clocks, rows, rows, agent, 0) is not None) == any(late)
            behind = [any(who != a and clock > know[a, who] for (place, who), clock in read.items() if place == x)
                      for a, x in zip(agent.tolist(), g.tolist(), strict=True)]
            found = reads.conflicts(g, clocks, rows, agent, np.arange(len(g)), rows, "read")
            assert (found is not None) == any(behind) and (found is None or behind[found.at])
            if what == "read":
                reads.note(g, rows, agent, now, 0, True)
                for a, x, clock in zip(agent.tolist(), g.tolist(), now.tolist(), strict=True):
                    read[x, a] = max(clock, read.get((x, a), 0))
            else:
                shadow.note_write(g, rows, agent, now, 0, 0)
                written |= {x: (a, clock) for a, x, clock in zip(agent.tolist(), g.tolist(), now.tolist(), strict=True)}


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(["read", "write", "barrier"]), st.integers(0, AGENTS - 1), st.integers(0, GRANULES - 1),
                          st.integers(1, GRANULES), st.sampled_from([1, -1])), min_size=1, max_size=20))
def test_a_run_is_what_its_granules_are(events: list[tuple[str, int, int, int, int]]) -> None:
    """An agent of each CTA accesses the same range of its memory: nothing is found where that shows at once, and the same is noted."""
    clocks = Clocks(np.arange(ROWS), 2, AGENTS)
    clocks.block(("all",), AGENTS - 1, "thread")
    (one, reads), (whole, whole_reads) = [(Shadow(ROWS * GRANULES), Crowd(ROWS * GRANULES)) for _ in range(2)]
    at = np.arange(ROWS)
    for what, agent, low, size, step in events:
        by, run = np.full(ROWS, agent), Run(ROWS, low, min(GRANULES, low + size))
        clocks.know[:, :, agent, agent] += 1
        clocks.version += 1
        if what == "barrier":
            met = [agent, low % AGENTS]
            clocks.know[:, :, met] = clocks.know[:, :, met].max(axis=2, keepdims=True)
            continue
        inside = np.arange(run.low, run.high)[::step]
        g, lanes, now = (inside + at[:, None] * GRANULES).reshape(-1), np.repeat(at, len(inside)), clocks.now(at, by)
        found = one.after_write(g, clocks, lanes, lanes, by[lanes], 0), reads.conflicts(g, clocks, at, by, lanes, lanes, "read")
        for shows, said in zip((whole.all_known(run, clocks, at, by, 0), whole_reads.all_known(run, clocks, at, by)), found, strict=True):
            assert not (shows and said)
        if what == "read":
            reads.note(g, lanes, by[lanes], now[lanes], 0, True)
            assert whole_reads.note_run(run, at[:, None], agent, now[:, None], 0, True)
        else:
            one.note_write(g, lanes, by[lanes], now[lanes], 0, 0)
            whole.note_write_run(run, at[:, None], agent, now[:, None], 0, 0)
        for a, b in ((one, whole), (reads, whole_reads)):
            assert all(np.array_equal(kept, vars(b)[name]) for name, kept in vars(a).items() if isinstance(kept, np.ndarray))


def test_granules_are_a_run_where_each_of_a_range_is_there_once_in_each_lane() -> None:
    tile = np.random.default_rng(1).permutation(LEAST_RUN) + 3
    lanes = np.concatenate([tile, tile + 100])
    assert run_of(tile, 1, 0) == Run(1, 3, 3 + LEAST_RUN) and run_of(lanes, 2, 200) == Run(2, 3, 3 + LEAST_RUN)
    twice, apart, other = tile.copy(), tile * 2, np.concatenate([tile, tile[::-1] + 100])
    twice[tile == 5] = 6
    assert [run_of(twice, 1, 0), run_of(apart, 1, 0), run_of(other, 2, 200), run_of(tile[1:], 1, 0)] == [None] * 4
