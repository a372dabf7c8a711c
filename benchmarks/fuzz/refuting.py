"""The checker against runs, on random kernels most of which have a hazard: a kind of hazard that a run shows is never called proved."""
from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from benchmarks.fuzz.awaiting import Awaiting
from benchmarks.fuzz.leaving import Leaving
from kir.analysis.proof.decide import decided
from kir.base.diagnostic import KirError
from kir.gate.proved.confirm import MOST_STEPS, OF_RUN
from kir.interp import run
from kir.ir import nodes as n
from kir.ir.parser import parse_program
from kir.ir.rules.verify import check

FORMS: dict[str, type[Leaving] | type[Awaiting]] = {"leaving": Leaving, "awaiting": Awaiting}
SIZES = (1, 2, 3, 5, 8, 12, 20, 31)
"""Values of N that a program is run at."""


def unsound(text: str, seed: int, count: Counter[str], form: str) -> Iterator[tuple[str, str]]:
    """The first kind of hazard that a run of a program shows and that the checker calls proved, with what the run says. Where a barrier is not proved to be
    reached by all, or an asynchronous operation not to be waited for, nothing else is claimed."""
    program = parse_program(text, "p.kir")
    try:
        check(program)
        unproved = {o.kind for k in decided(program) for o in k.obligations if o.status != "proved"} - {"overflow"}
    except KirError:
        count[f"{form}: refused"] += 1
        return
    count[f"{form}: not proved" if unproved else f"{form}: proved"] += 1
    least = int(text.partition("fact N >= ")[2].split()[0])
    for size in SIZES if not unproved & {"barrier", "wait", "ring"} else ():
        if size < least:
            continue
        for found in run(program, _arrays(program, size, seed), {"N": size}, mode="check", most_steps=MOST_STEPS).errors:
            kind = OF_RUN.get(found.kind)
            if kind is not None and kind not in unproved:
                yield kind, f"N = {size}: {found.diagnostic().message}"
                return


def _arrays(program: n.Program, size: int, seed: int) -> Mapping[str, Any]:
    """Inputs at a size: small numbers."""
    r, out = np.random.default_rng([seed, size]), {}
    for p in program.params:
        if isinstance(p.of, n.Buffer):
            shape = [int(d.value) if isinstance(d, n.Const) else size for d in p.of.shape]
            out[p.name] = r.integers(-1, 5, shape).astype(np.int32 if p.of.dtype.is_integer else np.float32)
    return out


__all__ = ["FORMS", "unsound"]
