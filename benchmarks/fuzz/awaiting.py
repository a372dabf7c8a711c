"""Random kernels around what is waited for: copies in groups, mbarriers of a ring between roles, named barriers, lanes of two warps. Each begins as a right one
of which some words are changed, so that most have a hazard and many are near one that has none."""
from __future__ import annotations

import random

HEAD = ("kir 1\nprogram p\n  size N: i32\n  fact N >= {least}\n  in X: f32[N, 16] align 16\n  inout Y: f32[N, 64]\n  inout Z: f32[64]\n"
        "kernel p grid (b: 1) threads {threads}\n")


class Awaiting:
    """A kernel over X[N, 16], Y[N, 64] and Z[64], all from a seed, in `text`."""

    def __init__(self, seed: int) -> None:
        self.r = random.Random(seed)
        self.kept = self.r.choice([0.85, 0.95, 1.0])
        self.made = 0
        self.threads, self.least = 32, 1
        body = self.r.choice([self.piped, self.ringed, self.lanes, self.named])()
        self.text = HEAD.format(least=self.least, threads=self.threads) + "".join(f"{line}\n" for line in body if line.strip())

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


__all__ = ["Awaiting"]
