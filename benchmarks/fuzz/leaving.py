"""Random kernels whose threads leave: `return`, `break` and `continue` under conditions, in loops around barriers. Most have a hazard
(`refuting.py`)."""
from __future__ import annotations

import random

THREADS, TRIPS, NUMBERS = 8, 4, 512
"""Threads of the one CTA; trips of a loop at most; elements of Y."""
HEAD = (f"kir 1\nprogram p\n  size N: i32\n  fact N >= 1\n  in J: i32[{THREADS}]\n  inout Y: f32[{NUMBERS}]\nkernel p grid (b: 1) threads {THREADS}\n"
        f"  shared S: f32[{THREADS}]\n  shared R: f32[2, {THREADS}]\n  for t in 0..{THREADS} parallel thread\n")
PLACES = ("t", "t", "7 - t", "t ^ 1", "(t + 1) % 8", "0", "t // 2")


class Leaving:
    """A kernel of S[8] and R[2, 8] in shared memory, with one loop or more, all from a seed, in `text`."""

    def __init__(self, seed: int) -> None:
        self.r = random.Random(seed)
        self.guarded = self.r.random() < 0.5
        begun = ["    S[t] = 0.0", "    R[0, t] = 0.0", "    R[1, t] = 0.0", "    barrier()"] if self.r.random() < 0.7 else []
        before, loop = self.block(2), self.loop()
        self.text = HEAD + "".join(f"{line}\n" for line in (*begun, *before, *loop, *self.block(2)))

    def condition(self, loop: bool) -> str:
        """Of the thread, the size, what J holds and, in a loop, the trip."""
        r, k = self.r, self.r.choice([0, 1, 2, 4, 8])
        i = "i" if loop else r.choice("123")
        return r.choice([f"t + {i} * {k} >= N", f"t + (3 - {i}) * {k} >= N", "t >= N", f"t == {r.randrange(THREADS)} & {i} == {r.randrange(TRIPS)}",
                         f"t {r.choice('<>')} {i}", f"t * 2 + {i} >= N", f"{i} * 2 > t", f"{i} == {r.randrange(TRIPS)}", f"t >= {r.randrange(1, THREADS)}",
                         f"J[t] > {i}", f"(t + {i}) % {r.choice('234')} == 0", f"{i} >= N"])

    def loop(self) -> list[str]:
        return [f"    for i in 0..{self.r.choice(['2', '3', '4', 'N % 4'])}", *self.block(3, loop=True)]

    def block(self, depth: int, loop: bool = False) -> list[str]:
        """One to four statements."""
        r, out, trip = self.r, list[str](), "i" if loop else "0"
        for _ in range(r.randint(1, 4)):
            kind = r.choices(range(7), [28, 6, 21, 20, 9, 12, 0 if loop else 4])[0]
            match kind:
                case 0:
                    store = f"S[{r.choice(['t', 't', 't', '7 - t', '(t + 3) % 8'])}] = 1.0"
                    out += ["barrier()", store, "barrier()"] if self.guarded else [store]
                case 1:
                    out += [f"if {self.condition(loop)}", "  S[t] = 2.0"]
                case 2:
                    out.append("barrier()")
                case 3:
                    out.append(f"Y[{trip} * 8 + t] = S[{r.choice(PLACES)}]")
                case 4:
                    out.append(r.choice([f"R[{trip} % 2, t] = 1.0", f"Y[{trip} * 8 + t + 64] = R[({trip} + {r.choice('01')}) % 2, {r.choice(PLACES)}]"]))
                case 5:
                    out += [f"if {self.condition(loop)}", f"  {r.choice(['return', 'break', 'continue']) if loop else 'return'}"]
                case _:
                    out += [line[4:] for line in self.loop()]
        return [f"{'  ' * depth}{line}" for line in out]


__all__ = ["Leaving"]
