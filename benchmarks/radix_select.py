"""Ways to show more of `topk_radix`, which `kir check` does not decide: `python -m benchmarks.radix_select` tries them, and says what comes of each.

Its index is bounded, and its slots are all different, because no more than K keys are above the one that is found: a fact about a count over all of a row,
which a histogram and its suffix sums carry from trip to trip. z3 is asked for that fact where sizes are small and fixed; a guard takes the fact's place; and
all rows of a few values are run.
"""
from __future__ import annotations

import itertools
import sys
import time
from pathlib import Path

import numpy as np
import z3

from kir.gate.proved import proved
from kir.interp import run
from kir.ir.parser import parse_program

EXPERT = Path(__file__).parents[1] / "skills" / "experts" / "topk" / "topk_radix.kir"
GUARDS = (("        @store_V V[row, slot] = x\n        @store_I I[row, slot] = j1\n",
           "        if slot < K\n          @store_V V[row, slot] = x\n          @store_I I[row, slot] = j1\n"),
          ("if turn < remaining\n", "if turn < remaining & K - remaining + turn < K & K - remaining + turn >= 0\n"))
BITS, LEVELS, STEPS = 2, 2, 20_000_000
VALUES = (-1.0, 0.0, -0.0, 2.0)


def bounded(keys: int) -> tuple[str, float]:
    """z3's answer, and its seconds, for so many keys of two digits of two bits: those above the found one, and those that are missing, come to K."""
    width = BITS * LEVELS
    row, k, solver = [z3.BitVec(f"x{i}", width) for i in range(keys)], z3.Int("k"), z3.Solver()
    solver.set("rlimit", STEPS)
    solver.add(k >= 1, k <= keys)
    prefix, mask, missing = z3.BitVecVal(0, width), 0, k
    for level in range(LEVELS):
        shift = BITS * (LEVELS - 1 - level)
        counts = [z3.Sum([z3.If(z3.And((x & mask) == prefix, z3.Extract(shift + BITS - 1, shift, x) == d), 1, 0) for x in row]) for d in range(1 << BITS)]
        more = [z3.Sum([z3.IntVal(0), *counts[d + 1:]]) for d in range(1 << BITS)]
        digit, left = z3.BitVec(f"d{level}", width), z3.Int(f"m{level}")
        solver.add(z3.Or([z3.And(digit == d, left == missing - more[d], more[d] < missing, more[d] + counts[d] >= missing) for d in range(1 << BITS)]))
        prefix, mask, missing = (digit << shift) | prefix, mask | ((1 << BITS) - 1) << shift, left
    solver.add(z3.Sum([z3.If(z3.UGT(x, prefix), 1, 0) for x in row]) + missing != k)
    begun = time.process_time()
    return {"unsat": "proved", "sat": "refuted"}.get(str(solver.check()), "given up"), time.process_time() - begun


def main() -> int:
    """Try them."""
    text = EXPERT.read_text(encoding="utf-8")
    guarded = text
    for old, new in GUARDS:
        assert old in guarded
        guarded = guarded.replace(old, new)
    for name, of in (("as it is", text), ("with guards", guarded)):
        kinds = {kind: proved(parse_program(of), 0).status(kind) for kind in ("bounds", "race", "barrier", "undefined")}
        print(f"kir check, {name}: {kinds}", flush=True)
    for keys in range(2, 7):
        print(f"z3, {keys} keys of {BITS * LEVELS} bits: {'{} in {:.2f} s'.format(*bounded(keys))}", flush=True)
    program, rows, wrong = parse_program(text), 0, 0
    for n in (1, 2, 3):
        for row, k in itertools.product(itertools.product(VALUES, repeat=n), range(1, n + 1)):
            found = run(program, {"X": np.array([row], np.float32)}, {"R": 1, "N": n, "K": k}, mode="check")
            rows, wrong = rows + 1, wrong + (bool(found.errors) or sorted(found.outputs["V"][0]) != sorted(row)[n - k:])
    print(f"all rows of up to 3 of {len(VALUES)} values, with all K: {rows} checked runs, {wrong} wrong or with a hazard")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
