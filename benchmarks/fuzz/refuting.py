"""The checker against runs, on random kernels most of which have a hazard: a kind of hazard that a run shows is never called proved."""
from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from kir.analysis.proof.decide import decided
from kir.base.diagnostic import KirError
from kir.gate.proved.confirm import MOST_STEPS, OF_RUN
from kir.interp import run
from kir.ir import nodes as n
from kir.ir.parser import parse_program
from kir.ir.rules.verify import check

SIZES = (1, 2, 3, 5, 8, 12, 20, 31)
"""Values of N that a program is run at."""
THREADS, TRIPS, NUMBERS = 8, 4, 512
"""Threads of the one CTA; trips of a loop at most; elements of Y."""
LEAVING = (f"kir 1\nprogram p\n  size N: i32\n  fact N >= 1\n  in J: i32[{THREADS}]\n  inout Y: f32[{NUMBERS}]\nkernel p grid (b: 1) threads {THREADS}\n"
        f"  shared S: f32[{THREADS}]\n  shared R: f32[2, {THREADS}]\n  for t in 0..{THREADS} parallel thread\n")
PLACES = ("t", "t", "7 - t", "t ^ 1", "(t + 1) % 8", "0", "t // 2")
AWAITING = ("kir 1\nprogram p\n  size N: i32\n  fact N >= {least}\n  in X: f32[N, 16] align 16\n  inout Y: f32[N, 64]\n  inout Z: f32[64]\n"
        "kernel p grid (b: 1) threads {threads}\n")


class Leaving:
    """A kernel whose threads leave: `return`, `break` and `continue` under conditions, in loops around barriers. S[8] and R[2, 8] in shared memory, all from
    a seed, in `text`."""

    def __init__(self, seed: int) -> None:
        self.r = random.Random(seed)
        self.guarded, self.loops = self.r.random() < 0.5, 0
        begun = ["    S[t] = 0.0", "    R[0, t] = 0.0", "    R[1, t] = 0.0", "    barrier()"] if self.r.random() < 0.7 else []
        before, loop = self.block(2), self.loop()
        self.text = LEAVING + "".join(f"{line}\n" for line in (*begun, *before, *loop, *self.block(2)))

    def condition(self, trip: str) -> str:
        """Of the thread, the size, what J holds and, in a loop, the trip."""
        r, k = self.r, self.r.choice([0, 1, 2, 4, 8])
        i = trip or r.choice("123")
        return r.choice([f"t + {i} * {k} >= N", f"t + (3 - {i}) * {k} >= N", "t >= N", f"t == {r.randrange(THREADS)} & {i} == {r.randrange(TRIPS)}",
                         f"t {r.choice('<>')} {i}", f"t * 2 + {i} >= N", f"{i} * 2 > t", f"{i} == {r.randrange(TRIPS)}", f"t >= {r.randrange(1, THREADS)}",
                         f"J[t] > {i}", f"(t + {i}) % {r.choice('234')} == 0", f"{i} >= N"])

    def loop(self) -> list[str]:
        self.loops += 1
        return [f"    for i{self.loops} in 0..{self.r.choice(['2', '3', '4', 'N % 4'])}", *self.block(3, f"i{self.loops}")]

    def block(self, depth: int, loop: str = "") -> list[str]:
        """One to four statements, in the loop over the trips of this name."""
        r, out, trip = self.r, list[str](), loop or "0"
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


class Awaiting:
    """A kernel around what is waited for: copies in groups, mbarriers of a ring between roles, named barriers, lanes of two warps; some words of a right one
    are changed. Over X[N, 16], Y[N, 64] and Z[64], all from a seed, in `text`."""

    def __init__(self, seed: int) -> None:
        self.r = random.Random(seed)
        self.kept = self.r.choice([0.85, 0.95, 1.0])
        self.made = 0
        self.threads, self.least = 32, 1
        body = self.r.choice([self.piped, self.ringed, self.lanes, self.named])()
        self.text = AWAITING.format(least=self.least, threads=self.threads) + "".join(f"{line}\n" for line in body if line.strip())

    def near(self, right: str, *others: str) -> str:
        """What is right, most of the time."""
        return right if self.r.random() < self.kept else self.r.choice(others)

    def piped(self) -> list[str]:
        """A ring that copies fill in groups, a few trips ahead."""
        r, near = self.r, self.near
        stages = r.choice([2, 3, 4])
        ahead = int(near(str(stages - 1), str(max(stages - 2, 1)), str(stages)))
        n = r.choice(["N", "N", "N", "3", "5"])
        self.least = 1 if n == "N" else int(n)
        slot = near(f"(k + {ahead}) % {stages}", f"(k + {ahead - 1}) % {stages}", f"k % {stages}")
        put = [near(f"    if k + {ahead} < {n}", f"    if k + {ahead} <= {n}", f"    if k + {ahead - 1} < {n}"),
               f"      copy X[k + {ahead}, 0 +: 16] -> S[{slot}, 0 +: 16] via cp_async grouped {{vector=4}}",
               near("    async_commit()", "      async_commit()", "")]
        wait, again, early = (near("    barrier()", ""), near("    barrier()", ""), r.random() < 0.5)
        pending = near(str(ahead if early else ahead - 1), str(ahead), str(max(ahead - 2, 0)))
        get = [f"    async_wait({pending})", wait, f"    let x = S[{near(f'k % {stages}', f'(k + 1) % {stages}')}, 0 +: 16]", "    Y[k, 0 +: 16] = x"]
        first = [f"  for i in 0..{ahead}", near(f"    if i < {n}", "    if i <= N"),
                 f"      copy X[i, 0 +: 16] -> S[i % {stages}, 0 +: 16] via cp_async grouped {{vector=4}}", near("    async_commit()", "")]
        return [f"  shared S: f32[{stages}, 16] align 16", *first, f"  for k in 0..{n}", *([*put, *get, again] if early else [*get, again, *put]),
                near("  async_wait(0)", "")]

    def ringed(self) -> list[str]:
        """A producer that fills a ring by bulk copies, and one consumer or two."""
        r, near, stages, consumers = self.r, self.near, self.r.choice([1, 2, 3, 4, 5]), self.r.choice([1, 1, 2])
        n = r.choice(["N", "N", "3", "7"])
        self.least, self.threads = 1 if n == "N" else int(n), 32 * (1 + consumers)
        full, empty = near("1", "2"), near(str(consumers), "1", "2")

        def phase(of: str, before: int) -> str:
            right = f"({of} // {stages} + 1) % 2" if before else f"{of} // {stages} % 2"
            return near(right, f"{of} % 2", f"({of} // {stages} + 1) % 2", f"{of} // {stages} % 2", "0", "1")
        at = near(f"k % {stages}", f"(k + 1) % {stages}")
        lines = [f"  shared S: f32[{stages}, 16] align 128", f"  shared full: mbarrier[{stages}]", f"  shared empty: mbarrier[{stages}]",
                 f"  for s in 0..{stages}",
                 f"    mbar_init(&full[s], {full})", f"    mbar_init(&empty[s], {empty})", near("  fence_mbar_init()", ""), near("  barrier()", ""),
                 "  roles", "    role producer warps 0..1", f"      for k in 0..{n}", near(f"        mbar_wait(&empty[k % {stages}], {phase('k', 1)})", ""),
                 f"        mbar_arrive_expect(&full[k % {stages}], {near('64', '32', '128')})",
                 f"        copy X[k, 0 +: 16] -> S[{at}, 0 +: 16] via bulk signal full[{near(f'k % {stages}', '0')}]"]
        for c in range(consumers):
            j = f"j{c}"
            use = [f"        let x{c} = S[{j} % {stages}, 0 +: 16]", f"        Y[{j}, {16 * c} +: 16] = x{c}"]
            wait = [f"        mbar_wait(&full[{near(f'{j} % {stages}', f'({j} + 1) % {stages}')}], {phase(j, 0)})"]
            arrive = f"mbar_arrive(&empty[{near(f'{j} % {stages}', f'({j} + 1) % {stages}')}])"
            done = r.choices([[f"        {arrive}"], [f"        if {j} + 1 < {n}", f"          {arrive}"]], [12, 1])[0]
            order = r.choices([[*wait, *use, *done], [*wait, *done, *use], [*use, *wait, *done], [*wait, *use]], [20, 1, 1, 1])[0]
            lines += [f"    role consumer{c} warps {1 + c}..{2 + c}", f"      for {j} in {near('0', '1')}..{near(n, f'{n} - 1')}", *order]
        return lines

    def lanes(self) -> list[str]:
        """Two warps that exchange values through memory, within a warp and beyond."""
        self.threads = 64
        meet = self.r.choice(["warp_sync()", "barrier()", "barrier()"])
        more = [line for _ in range(self.r.randint(2, 8)) for line in self.exchange("    ")]
        return ["  shared S: f32[64]", "  shared R: f32[2]", "  for t in 0..64 parallel thread", "    register v: f32 = X[0, t % 16]", "    S[t] = v",
                "    if t % 32 == 0", "      R[t // 32] = v", f"    {meet}", *more, "    Y[0, t] = v"]

    def exchange(self, lead: str) -> list[str]:
        r, self.made = self.r, self.made + 1
        match r.choices(range(8), [4, 4, 4, 3, 2, 2, 2, 2])[0]:
            case 0:
                return [f"{lead}S[{r.choice(['t', 't', '63 - t', 't ^ 1', 't ^ 32'])}] = v"]
            case 1:
                return [f"{lead}v = S[{r.choice(['t', 't ^ 1', 't ^ 16', 't ^ 32', 't // 32 * 32', '63 - t', '(t + 1) % 32', 't // 32 * 32 + (t + 1) % 32'])}]"]
            case 2:
                return [f"{lead}warp_sync()"]
            case 3:
                return [f"{lead}barrier()"]
            case 4:
                return [f"{lead}let w{self.made} = shfl_xor(v, {r.choice([1, 16])})", f"{lead}v = w{self.made}"]
            case 5:
                return [f"{lead}if t % 32 == 0", f"{lead}  R[t // 32] = v"] if r.random() < 0.5 else [f"{lead}v = R[{r.choice(['0', '1', 't // 32'])}]"]
            case 6:
                return [f"{lead}Z[{r.choice(['t', 't', '63 - t'])}] = v"]
            case _:
                test = r.choice(["t < 32", "t >= 32", "t % 32 < 16", "t // 32 == 0", "t < N", "v > 0.5", "t < 48", "t % 32 == 0"])
                head = f"if {test}" if r.random() < 0.6 else f"for i{self.made} in 0..{r.choice(['2', '3', 'N'])}"
                return [f"{lead}{head}", *(line for _ in range(r.randint(1, 4)) for line in self.exchange(f"{lead}  "))]

    def named(self) -> list[str]:
        """Warps with roles of their own that meet at named barriers."""
        r, near, warps = self.r, self.near, self.r.choice([2, 3])
        self.threads, self.least = 32 * warps, 3
        n, count = r.choice(["N", "2", "3"]), str(32 * warps)

        def meet(lead: str, how: str, number: str) -> str:
            return f"{lead}named_barrier_{near(how, 'sync', 'arrive')}({near(number, '1', '2')}, {near(count, '64', '96')})"
        lines, loop = ["  shared R: f32[2, 16]", "  roles"], r.random() < 0.7
        turns = r.random() < 0.5
        for w in range(warps):
            at = f"k{w}" if loop else "0"
            lead = "        " if loop else "      "
            slot = near(f"{at} % 2" if turns else "0", f"({at} + 1) % 2", "1")
            lines += [f"    role r{w} warps {w}..{w + 1}", f"      for k{w} in 0..{near(n, '2', '3')}" if loop else ""]
            read = [f"{lead}let x{w} = R[{slot}, 0 +: 16]", f"{lead}Y[{at}, {16 * w} +: 16] = x{w}"]
            work = read if w else [f"{lead}R[{slot}, 0 +: 16] = X[{at}, 0 +: 16]"]
            told, free = meet(lead, "arrive" if w == 0 else "sync", "1"), meet(lead, "sync" if w == 0 else "arrive", "2")
            lines += [*work, told, near(free, "")] if w == 0 else [told, *work, near(free, "")]
        return lines


FORMS: dict[str, type[Leaving] | type[Awaiting]] = {"leaving": Leaving, "awaiting": Awaiting}


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
