"""What a shadow finds of accesses within CTAs, beside what its definition says, one access at a time: short ways change nothing."""
from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from kir.interp.state.clocks import ORDERED, Clocks
from kir.interp.state.shadow import Crowd, Shadow

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
