"""Names of a program that mean two things: what the verifier refuses, and what no binding is put into."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from kir.base.diagnostic import Diagnostic
from kir.base.instructions import table
from kir.ir import nodes as n
from kir.ir.canonical import bound_names


def taken_twice(p: n.Program) -> Iterator[Diagnostic]:
    """Names that are defined twice where both are in view, and device functions with the name of an instruction (KIR-V004)."""
    outer = (*(m.name for m in p.metas), *(q.name for q in p.params), *(w.buffer.name for w in p.workspaces))
    yield from _repeated(outer, frozenset(), p.name)
    known = frozenset(outer)
    for f in p.functions:
        if f.name in table():
            yield Diagnostic("KIR-V004", f"the device function '{f.name}' has the name of an instruction", anchor=f.name, needs="another name")
        yield from _repeated((*(x.name for x in f.params), *bound_names(f.body)), known, f.name)
    for k in p.kernels:
        yield from _repeated((*(a.name for a in k.grid), *bound_names(k.body)), known, k.name)


def _repeated(names: Iterable[str], known: frozenset[str], where: str) -> Iterator[Diagnostic]:
    seen = set(known)
    for name in names:
        if name in seen:
            yield Diagnostic("KIR-V004", f"'{name}' is defined twice", anchor=where, needs="names that are unique within a kernel and differ from parameters")
        seen.add(name)
