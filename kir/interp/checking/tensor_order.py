"""Who touched tensor memory, and whether fences order it: beside the meetings that order all memory, threads need one before and one after."""
from __future__ import annotations

import numpy as np

from kir.interp.checking.happens_before import HappensBefore
from kir.interp.numerics.number import Array, some
from kir.interp.state.clocks import HEARD, ORDERED, TOLD
from kir.interp.state.frame import Frame
from kir.interp.state.memory import Memory
from kir.interp.state.result import Access


class TensorOrder(HappensBefore):
    """Told of tensor memory."""

    def unheard(self, memory: Memory, g: Array, lane: int, f: Frame, verb: str) -> None:
        """Reports an access that a meeting orders after another, and no fences (KIR-I073)."""
        shadow = memory.shadow
        assert shadow is not None
        clocks, rows, agents = self._who(f)
        row, agent = int(rows[lane]), int(agents[lane])
        heard, known, cta = clocks.know[HEARD, row, agent], clocks.know[ORDERED, row, agent], clocks.numbers[row]
        by, clock = shadow.agent[g], shadow.clock[g]
        late = (shadow.cta[g] == cta) & (by != agent) & (heard[by] < clock) & (known[by] >= clock)
        site, what = (int(shadow.site[g[int(late.argmax())]]), "write") if some(late) else (-1, "")
        if verb == "write" and shadow.reads.used and site < 0:
            columns = shadow.reads.column_agents
            seen = shadow.reads.clock[g, :len(columns)]
            unheard = (shadow.reads.cta[g] == cta)[:, None] & (columns != agent) & (seen > heard[columns]) & (seen <= known[columns])
            if some(unheard):
                site, what = int(shadow.reads.site[g[int(unheard.any(1).argmax())]]), "read"
        if site >= 0:
            s = self.sites[site]
            other = Access.at(what, self.m.anchor(s), f"CTA {cta}", s.origin if s is not None else None)
            self.m.report("tensor", "error", f"{verb} of tensor memory is not fenced from a {what} by another thread, which it comes after", f, lane,
                          id="KIR-I073", buffer=memory.name, verb=verb, accesses=(other,))

    def told(self, f: Frame, agents: Array) -> None:
        """What agents know of tensor memory is told by what they publish next."""
        clocks, rows, _ = self._who(f)
        clocks.know[TOLD, rows, agents] = np.maximum(clocks.know[TOLD, rows, agents], clocks.know[ORDERED, rows, agents])

    def heard(self, f: Frame, agents: Array, lanes: Array) -> None:
        """The lanes go on after what their own operations did, without a fence."""
        clocks, rows, own = self._who(f)
        clocks.follow_on(rows[lanes], own[lanes], agents[lanes])

    def in_order(self, f: Frame, agents: Array, before: Array, lanes: Array) -> None:
        """Agents of products come after those of earlier products of the same threads."""
        clocks, rows, _ = self._who(f)
        at = lanes & (agents != before)
        if some(at):
            clocks.learn(rows[at], agents[at], before[at])
            clocks.follow_on(rows[at], agents[at], before[at])
