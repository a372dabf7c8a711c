"""Calls that may be missing from a program, and where: barriers, fences, waits for groups and for mbarriers, by what is found in it.

A finding names two accesses that are not ordered, and what made each. What is done asynchronously is waited for by the call of its kind; what hands memory
over (a barrier, an arrival) stands behind that wait, so places before such come first. Of an mbarrier that is not waited for the stage is that of the shared
array at hand, and the phase turns each time that the stage comes round.
"""
from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import chain

from kir.base.dataclass import dataclass
from kir.base.diagnostic import Diagnostic, KirError
from kir.base.instructions import instruction
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.build import int_value
from kir.ir.types import MBARRIER
from kir.ir.visit import regions, walk
from kir.rewrite.anchor import anchor_text, path_of
from kir.rewrite.edit import Path, edit_block, enclosing, kernel_of, node_at, places

ASKED: Mapping[str, tuple[tuple[str, ...], ...]] = {
    "KIR-I012": (("async_wait",), ("barrier",), ("async_wait", "barrier"), ("mbar_wait",)),
    "KIR-I014": (("barrier",), ("async_wait",), ("async_wait", "barrier"), ("mbar_wait",), ("wgmma_wait",), ("bulk_wait",), ("fence_async", "barrier")),
    "KIR-I015": (("fence_async",), ("fence_mbar_init",), ("fence_async", "barrier")),
    "KIR-I016": (("wgmma_wait",), ("wgmma_fence",)),
    "KIR-I017": (("async_wait",), ("wgmma_wait",), ("bulk_wait",)),
    "KIR-I024": (("async_wait",), ("async_wait", "barrier"), ("wgmma_wait",), ("bulk_wait",), ("barrier",)),
    "KIR-V015": (("async_wait",), ("async_wait", "barrier"), ("wgmma_wait",), ("bulk_wait",), ("mbar_wait",), ("async_commit", "async_wait"))}
"""By the id of a finding: the calls that may be missing before a statement that it names, in order."""
OWN = ("KIR-I016", "KIR-I017")
"""Findings about what a thread does not hand over: its registers, and what is in flight when it ends."""
COUNTED = ("async_wait", "bulk_wait", "wgmma_wait")
"""Calls that name how many groups may still be in flight."""
WAITS = (*COUNTED, "mbar_wait")
CALL = 6
"""How many places further a call is tried than the one that is likelier."""


@dataclass(frozen=True)
class Put:
    """Calls put into a program: before (`after` 0) or behind (1) the statement at a path."""

    calls: tuple[n.Call, ...]
    path: Path
    after: int

    def made(self, program: n.Program, groups: int = 0) -> n.Program:
        """The program with the calls, of which those that are counted leave so many groups in flight."""
        stmts = tuple(n.Eval(build.call(c.fn, build.const(groups)) if c.fn in COUNTED else c) for c in self.calls)
        at = int(self.path[-1]) + self.after
        return edit_block(program, self.path, lambda block: (*block[:at], *stmts, *block[at:]))

    def how(self, program: n.Program, groups: int = 0) -> str:
        """What was put where, in words."""
        said = " and ".join(f"{c.fn}({groups})" if c.fn in COUNTED else c.fn for c in self.calls)
        return f"{said} {('before', 'behind')[self.after]} {anchor_text(program, self.path)}"

    @property
    def is_counted(self) -> bool:
        """Whether it is one call that names groups."""
        return len(self.calls) == 1 and self.calls[0].fn in COUNTED


def named(program: n.Program, each: Diagnostic) -> list[Path]:
    """The statements that a finding names."""
    return list(_sides(program, each))


def asked(program: n.Program, findings: Sequence[Diagnostic]) -> Iterator[Put]:
    """Calls that may be missing where the findings are, the likeliest first: as a call is less likely, and its place."""
    for each in findings:
        sides, known = _sides(program, each), ASKED.get(each.id, ())
        waits = {wait for path, engine in sides.items() for wait in _waits(node_at(program, path), engine)}
        said = " ".join((each.message, *each.witness))
        told = {fn for fn in chain(*known) if re.search(rf"\b{fn}\b", each.message) or (fn == "fence_mbar_init" and "mbarrier" in said)}
        found: list[tuple[int, Put]] = []
        for less, names in enumerate(sorted(known, key=lambda names: (not told & {*names}, not waits & {*names}))):
            where = enumerate(_places(program, list(sides), names, each.id in OWN))
            made = [_phases(program, list(sides)) if name == "mbar_wait" else [_plain(name)] for name in names]
            found += [(CALL * less + k, Put(calls, path, after)) for k, (path, after) in where for calls in zip(*made, strict=True)]
        yield from (put for _, put in sorted(found, key=lambda one: one[0]))


def _places(program: n.Program, paths: Sequence[Path], names: Sequence[str], own: bool) -> Iterator[tuple[Path, int]]:
    """Where calls may be missing, each place once, the likeliest first: a wait before what hands memory over, a barrier behind a wait, anything between the
    two accesses; then behind where a group is closed. Of what is a thread's `own` nothing is handed over."""
    apart = [(at, after) for at in _apart(program, paths) for after in (0, 1)]
    of_kernel = [(at, s) for at, s in places(program) if isinstance(s, n.Eval) and paths and at[0] == paths[0][0]]
    waiting = [(at, 1) for at, s in of_kernel if s.call.fn in WAITS]
    handing = [(_outside_branches(program, at), 0) for at, s in of_kernel if s.call.of is None and instruction(s.call.fn).effect == "sync"]
    closing = [(at, 1) for at, s in of_kernel if s.call.fn.endswith("_commit")]
    handed = names[0] in COUNTED or (names[0] == "mbar_wait" and len(paths) < 2)  # who reads what a copy brings waits for its mbarrier itself
    first = waiting if names == ("barrier",) else handing if not own and handed else []
    yield from dict.fromkeys((*first, *apart, *closing))


def _outside_branches(program: n.Program, path: Path) -> Path:
    """The path of the outermost of the branches right around a statement; its own where it stands in none."""
    for at, place in reversed([*enclosing(program, path)]):
        if not isinstance(place, n.If):
            break
        path = at
    return path


def _plain(name: str) -> n.Call:
    return build.call(name, build.const(0)) if name in COUNTED else build.call(name)


def _sides(program: n.Program, each: Diagnostic) -> dict[Path, str]:
    """The statements that a finding names, each with what made the access where that is asynchronous (`cp_async`, `bulk`, `wgmma`)."""
    out: dict[Path, str] = {}
    for line in (each.subject, *each.witness):
        engine = re.search(r" by CTA \d+, (cp_async|bulk|wgmma)\b", line)
        for word in line.split():
            with suppress(KirError, KeyError, ValueError):
                path = path_of(program, word) if "/" in word else ()
                if path and (engine is not None or path not in out):
                    out[path] = engine[1] if engine is not None else ""
    return out


def _waits(s: n.Node, engine: str) -> tuple[str, ...]:
    """The calls that wait for what a statement begins."""
    if isinstance(s, n.Copy):
        if s.signal is not None:
            return ("mbar_wait",)
        return ("async_wait",) if engine == "cp_async" or s.via.startswith("cp_async") else ("bulk_wait",) if s.grouped else ()
    return ("wgmma_wait",) if engine == "wgmma" or (isinstance(s, n.Mma) and s.pending) else ()


def _apart(program: n.Program, paths: Sequence[Path]) -> Iterator[Path]:
    """Where what is named may be set apart: the statements of the innermost block that holds all of it, then each that is named, then those around it."""
    for path in paths:
        around = [at for at, place in enclosing(program, path) if not isinstance(place, n.Kernel)]
        rest = [other for other in paths if other != path]
        yield from (at for at in (*around, path) if rest and all(other[:len(at) - 1] == at[:-1] and other[:len(at)] != at for other in rest))
        yield path
        yield from reversed(around)


def _phases(program: n.Program, paths: Sequence[Path]) -> list[n.Call]:
    """Waits for the mbarriers of a kernel, those that nothing waits for first, then those on which a copy that is named completes, which something else reads:
    for the stage of the shared arrays that are named, in either phase."""
    found = [r for r in walk(kernel_of(program, paths[0])) if isinstance(r, n.Region)] if paths else []
    barriers = {r.buffer.name: r.buffer for r in found if r.buffer.dtype == MBARRIER}
    calls = [x for x in walk(kernel_of(program, paths[0])) if isinstance(x, n.Call) and x.fn == "mbar_wait"] if paths else []
    waited = {a.buffer.name for x in calls for a in x.args if isinstance(a, n.Region)}
    staged = [r.index[0] for path in paths for r in regions(node_at(program, path)) if r.buffer.space == "shared" and r.buffer.dtype != MBARRIER and r.index]
    stages = [e for e in dict.fromkeys(staged) if isinstance(e, n.Expr)]
    signals = {s.signal.buffer.name if isinstance(s, n.Copy) and s.signal is not None else "" for s in (node_at(program, path) for path in paths)}
    out = []
    for b in sorted(barriers.values(), key=lambda b: (b.name in waited, len(signals) < 2 or b.name not in signals)):
        for e in stages if b.shape else [build.const(0)]:
            turn = build.floordiv(e.a, e.b) if isinstance(e, n.Binary) and int_value(e.b) and build.mod(e.a, e.b) == e else build.const(0)
            at = build.region(b, e) if b.shape else build.region(b)
            out += [build.call("mbar_wait", at, build.mod(build.add(turn, more) if more else turn, 2)) for more in (0, 1)]
    return out
