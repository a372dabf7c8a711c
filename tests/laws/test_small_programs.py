"""Laws 1, 2 and 3, three steps deep: small programs made at random, and passes taken in any order and direction."""
from __future__ import annotations

import random

import pytest

from benchmarks.fuzz.making import Made
from kir.analysis import normalize
from kir.base.diagnostic import KirError
from kir.ir import nodes as n
from kir.ir.canonical import content_hash
from kir.ir.parser import parse_program
from kir.ir.printer import program_text
from kir.rewrite import apply, judge, passes, sites
from kir.rewrite.driver import forward_site, rejection_reason, run_forward
from kir.rewrite.meaning import difference
from kir.rewrite.pipelines.text import Direction

PASSES = [cls for cls in passes() if getattr(cls, "carrier", None) is None and cls.name not in ("templatize", "autotune")]
"""All but those that leave holes or open parameters, which nothing interprets."""
DEPTH, SEEDS = 3, 8


def _step(r: random.Random, p: n.Program) -> tuple[n.Program, str, str] | None:
    """What some pass makes of a program at some site: forward then backward, or the other way round, gives the program again."""
    for cls in r.sample(PASSES, len(PASSES)):
        direction: Direction = r.choice(("forward", "backward"))
        found = sites(cls.with_options({}), p, direction)
        if not found:
            continue
        site = r.choice(found)
        validity = {each.id for each in site.params.preconditions if each.kind == "validity"}
        if direction == "forward" and (any(not v for id_, v in judge(p, site) if id_ in validity) or rejection_reason(p, site)):
            continue
        try:
            done = apply(p, site.params, site, direction)
        except KirError as refused:
            assert direction == "backward" and all(d.id.startswith("KIR-P") for d in refused.diagnostics), f"{refused}\n{site.params}\n{program_text(p)}"
            continue
        if direction == "backward":
            there = forward_site(done.program, done.witness.params, done.witness.path)
            assert content_hash(run_forward(done.program, there, done.witness.residue).program) == content_hash(p)
        return done.program, f"{'~' if direction == 'backward' else ''}{site.params}@{site.path}", cls.numerics
    return None


@pytest.mark.parametrize("seed", range(SEEDS))
def test_three_steps_keep_the_laws(seed: int) -> None:
    for k in range(4):
        made = Made(100 * seed + k, more=False)
        p, ran = normalize(parse_program(made.text, "p.kir")), made.runner()
        base, trail, numerics = ran(p), list[str](), "bitwise"
        assert not base.errors, f"{base.errors[0]}\n{made.text}"
        for _ in range(DEPTH):
            step = _step(made.r, p)
            if step is None:
                break
            before, (p, told, moved) = p, step
            trail.append(told)
            numerics = moved if moved != "bitwise" else numerics
            said = f"{made.sizes} {trail}\n{program_text(before)}\n{program_text(p)}"
            assert parse_program(program_text(p), "p.kir") == p, said
            after = ran(p)
            assert not after.errors and difference(base, after, numerics) == "", said
