"""What a run finds: where it is, what it counts, and the hazards that it has met."""
from __future__ import annotations

import sys
from typing import Any, Literal

import numpy as np

from kir.base.diagnostic import error
from kir.base.working import late
from kir.interp.numerics.number import Array, every, some
from kir.interp.numerics.values import Mask, Val, both, lift
from kir.interp.state.frame import LEVELS, Frame
from kir.interp.state.memory import Handle, Place
from kir.interp.state.result import Access, Counters, Finding
from kir.interp.state.tasks import Task
from kir.ir import nodes as n
from kir.ir.visit import statements

MOST_FINDINGS = 200
LOOKS = 64
"""Statements after which it is asked whether there is time left."""


class FirstError(Exception):
    """A run that is to end with its first error has found it."""


class NoRoom(FirstError):
    """A run that has found errors can follow what is in flight no longer: its outputs are what was written until then."""


class Findings:
    """The findings of a run of a program. `site` and `task` say where it is, `anchors` name statements by identity."""

    def __init__(self, program: n.Program, most_steps: int = sys.maxsize, one_error: bool = False) -> None:
        self.program, self.most_steps, self.one_error = program, most_steps, one_error
        self.counters = Counters()
        self.findings: dict[Any, Finding] = {}
        self.kernel: n.Kernel | None = None
        self.site: n.Stmt | None = None
        self.task: Task | None = None
        self.anchors: dict[int, str] = {}

    def anchor(self, s: n.Stmt | None) -> str:
        """The place of a statement as text."""
        name = self.kernel.name if self.kernel is not None else ""
        return self.anchors.get(id(s), name) if s is not None else name

    def thread_name(self, f: Frame | None, lane: int) -> str:
        """How a finding names an instance: `CTA 3, thread 17`."""
        if f is None:
            return self.task.name if self.task is not None else "the CTA"
        cta = f"CTA {int(f.cta[lane])}" if f.cta is not None else "CTA 0"
        own = f" {f.level} {int(f.thread_numbers()[lane])}" if f.level in LEVELS else ""
        role = f" {f.name.split('/', 1)[1]}" if "/" in f.name and f.level != "thread" else ""
        return f"{cta},{own or role}" if own or role else cta

    def report(self, kind: str, severity: Literal["error", "weak"], message: str, f: Frame | None, lane: int = 0, *, id: str,
               buffer: str = "", verb: str = "", accesses: tuple[Access, ...] = ()) -> None:
        """Notes a finding at the current statement; one for each kind, place and other place. Raises FirstError where an error ends the run."""
        s = self.site
        own = Access.at(verb or kind, self.anchor(s), self.thread_name(f, lane), s.origin if s is not None else None)
        seen = accesses if kind == "deadlock" else (own, *accesses)
        key = (id, kind, severity, buffer, tuple((a.verb, a.anchor) for a in seen))
        if key not in self.findings and len(self.findings) < MOST_FINDINGS:
            self.findings[key] = Finding(id, kind, severity, message, self.kernel.name if self.kernel else "", buffer, seen)
        if self.one_error and severity == "error":
            raise FirstError

    def no_room(self, at_all: bool) -> None:
        """What is in flight is more than is followed where errors have been found, or `at_all`. Raises NoRoom in the first case, else KirError KIR-I007."""
        if any(x.severity == "error" for x in self.findings.values()):
            raise NoRoom
        if at_all:
            s = self.site
            raise error("KIR-I007", "more asynchronous operations are in flight than can be followed", origin=s.origin if s else None, anchor=self.anchor(s))

    def must_be_defined(self, v: Val, f: Frame, what: str) -> None:
        """Reports an undefined value that reaches an address, a branch or an effect (KIR-I012)."""
        if v.ok is None or every(v.ok):
            return
        bad = np.broadcast_to(~v.ok, v.data.shape if v.data.shape[0] > 1 or f.live is None else (f.lanes, *v.tile))
        bad = np.asarray(bad.reshape(bad.shape[0], -1).any(1))
        if f.live is not None:
            bad = np.logical_and(bad, f.live if bad.shape[0] > 1 else some(f.live))
        if some(bad):
            self.report("poison", "error", f"an undefined value reaches {what}", f, int(bad.argmax()), id="KIR-I012")

    def must_be_true(self, v: Val, f: Frame, what: str) -> None:
        """Reports an assumption or assertion that does not hold (KIR-I013)."""
        bad = np.broadcast_to(~v.data.astype(np.bool_).reshape(v.data.shape[0], -1).all(1), (f.lanes,)) & f.active()
        if some(bad):
            self.report(what, "error", f"the {what} does not hold", f, int(bad.argmax()), id="KIR-I013")

    def must_hold(self, index: Array, extent: int, f: Frame, what: str) -> None:
        """Reports an index of a value that is out of its range (KIR-I010)."""
        if index.size == 0 or (int(index.min()) >= 0 and int(index.max()) < extent):
            return
        bad = ((index < 0) | (index >= extent)).reshape(index.shape[0], -1).any(1)
        bad = np.broadcast_to(bad, (f.lanes,)) & f.active()
        if some(bad):
            self.report("bounds", "error", f"{what} is outside 0..{extent}", f, int(bad.argmax()), id="KIR-I010")

    def out_of_bounds(self, place: Place, f: Frame, want: Mask, verb: str, inside: Mask) -> None:
        """Reports active elements that are not `inside` their buffer (KIR-I010)."""
        if inside is None:
            return
        rank = max(inside.ndim, 1 if want is None else want.ndim) - 1
        outside = both(~lift(inside, rank), None if want is None else lift(want, rank))
        live = np.ones((1,), np.bool_) if f.live is None else f.live
        bad = np.logical_and(outside, lift(live, rank))
        if not some(bad):
            return
        shape = np.broadcast_shapes(bad.shape, lift(place.index, rank).shape)
        where = np.unravel_index(int(np.broadcast_to(bad, shape).argmax()), shape)
        at = [int(np.broadcast_to(lift(x, rank), shape)[where]) for x in place.indices]
        name = place.handle.buffer.name
        self.report("bounds", "error", f"{verb} of {name}{at} is outside its shape {list(place.handle.shape)}", f,
                    int(where[0]) if bad.shape[0] > 1 else 0, id="KIR-I010", buffer=name, verb=verb, accesses=(self.declaration(name),))

    def declaration(self, name: str) -> Access:
        """Where a buffer comes from, as the other side of an access that leaves it."""
        for k in self.program.kernels:
            for s in statements(k.body):
                if isinstance(s, (n.Alloc, n.View)) and s.buffer.name == name:
                    return Access.at("memory declared", self.anchor(s), "", s.origin)
        return Access("memory given", name, "the caller")

    def view_fits(self, b: n.Buffer, start: Array, needed: int, itemsize: int, base: Handle, f: Frame) -> None:
        """Reports a reinterpretation that is not aligned (KIR-I011). Raises KirError KIR-I010 for one that reaches past the end of its memory: what lies there
        is no element of anything."""
        past, name = start + needed > base.memory.size, b.name
        if some(past):
            raise error("KIR-I010", f"view '{name}' needs {needed} bytes at {int(start[past.argmax()])} of {base.memory.size}",
                        origin=self.site.origin if self.site is not None else None)
        if some(start % itemsize):
            self.report("alignment", "error", f"view '{name}' of {b.dtype} starts at byte {int(start.max())}", f, id="KIR-I011",
                        buffer=name)

    def count_step(self, s: n.Stmt) -> None:
        """Raises KirError KIR-I007 once more statements have run than the caller allows, or what it is run for is of no use any more (`kir.base.working`)."""
        self.counters.steps += 1
        if not self.counters.steps % LOOKS and late():
            raise error("KIR-I007", "the time that there was for it is over", origin=s.origin, anchor=self.anchor(s))
        if self.counters.steps > self.most_steps:
            raise error("KIR-I007", f"more than {self.most_steps} statements have run", origin=s.origin, anchor=self.anchor(s))
