"""Wrong answers to the contracts that ship: a recorded right one with one change each, and what is wrong with it."""
from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from kir.lineage.carrier import Answer, Contract
from kir.lineage.carrier.records import save


@dataclass(frozen=True)
class Wrong:
    """`old` of the answer `base` made `new`. `id` is the diagnostic that refuses it, `says` a part of what it says."""

    contract: str
    name: str
    base: str
    old: str
    new: str
    id: str
    says: str

    @property
    def of(self) -> Contract:
        return Contract.shipped(self.contract.replace("-", "_"))

    @property
    def answer(self) -> Answer:
        text = (self.of.folder / f"{self.base}.kir").read_text(encoding="utf-8")
        assert self.old in text, f"{self.base}.kir does not hold {self.old!r}"
        return Answer(text.replace(self.old, self.new), file=f"{self.name}.kir")


WRONG = (
    Wrong("radix-select", "wrong_ties", "histogram", "if turn < remaining", "if turn < remaining & turn < 1", "KIR-H131", "is undefined"),
    Wrong("radix-select", "same_tie_twice", "histogram", "I[K - remaining + turn] = ", "I[K - remaining + turn] = 0 * ",
          "KIR-H130", "does not point at V"),
    Wrong("radix-select", "one_tie_for_all", "histogram", "register remaining: i32 = K", "register remaining: i32 = 1",
          "KIR-H131", "is undefined"),
    Wrong("radix-select", "reads_outside", "histogram", "ceildiv(N - t, 256)", "ceildiv(N, 256)", "KIR-H131", "outside"),
    Wrong("radix-select", "wrong_tail", "bits", "0..ceildiv(N, 1024)", "0..N // 1024", "KIR-H131", "is undefined"),
    Wrong("radix-select", "poison", "histogram", "if key1 > prefix\n", "if key1 > prefix & key1 != 4294967295:u32 & level < 4\n",
          "KIR-H131", "is undefined"),
    Wrong("radix-select", "signs", "histogram", "select(bits >= 2147483648:u32, ~bits, bits | 2147483648:u32)", "(bits ^ 2147483648:u32)",
          "KIR-H131", "is undefined"),
    Wrong("radix-select", "races", "histogram", "      @clear counts[t] = 0\n      barrier()\n", "      @clear counts[t] = 0\n",
          "KIR-H131", "race"),
    Wrong("gated-delta-rule", "undecayed", "tiles", "state = state * exp(last)", "state = state * 1.0", "KIR-H130", "the oracle says"),
    Wrong("gated-delta-rule", "reads_outside", "tiles", 'load(k[c * 64 +: 64, 0 +: 64] else 0.0:bf16 clip)', "k[c * 64 +: 64, 0 +: 64]",
          "KIR-H131", "outside"),
    Wrong("gated-delta-rule", "wrong_tail", "tiles", "kernel outputs grid (c: ceildiv(L, 64))", "kernel outputs grid (c: L // 64)",
          "KIR-H131", "is undefined"),
    Wrong("gated-delta-rule", "one_sided", "tiles", ">= iota(64), scores", "> iota(64), scores", "KIR-H130", "the oracle says"),
    Wrong("gated-delta-rule-d128", "undecayed", "warpgroups", "state = state * Es[(c1 + 1) % 3, 63]", "state = state * 1.0", "KIR-H130", "the oracle says"),
    Wrong("gated-delta-rule-d128", "reads_outside", "tiles", "load(v[c * 64 +: 64, e * 64 +: 64] else 0.0:bf16 clip)", "v[c * 64 +: 64, e * 64 +: 64]",
          "KIR-H131", "outside"),
    Wrong("chunk-inverse", "counts_diagonal", "tiles", "axis=1) > iota(64), gram", "axis=1) >= iota(64), gram", "KIR-H130", "the oracle says"),
    Wrong("chunk-inverse", "reads_outside", "tiles", "load(k[c * 64 +: 64, 0 +: 128] else 0.0:bf16 clip)", "k[c * 64 +: 64, 0 +: 128]",
          "KIR-H131", "outside"),
    Wrong("unit-lower-solve", "reads_diagonal", "tiles", "expand(iota(64), axis=1) > iota(64), L", "expand(iota(64), axis=1) >= iota(64), L",
          "KIR-H130", "the oracle says"),
    Wrong("unit-lower-solve", "reads_outside", "tiles", "load(B[0 +: 64, p * 64 +: 64] else 0.0 clip)", "B[0 +: 64, p * 64 +: 64]",
          "KIR-H131", "outside"),
    Wrong("unit-lower-solve", "half", "threads", "@block_loop for b in 0..4", "@block_loop for b in 0..2", "KIR-H130", "the oracle says"),
    Wrong("stable-counting-sort", "unstable", "tiles", "expand(iota(128), axis=1) > iota(128)", "expand(iota(128), axis=1) < iota(128)",
          "KIR-H130", "the oracle says"),
    Wrong("stable-counting-sort", "races", "warps", "      warp_sync()\n", "", "KIR-H131", "race"),
    Wrong("stable-counting-sort", "reads_outside", "tiles", "load(keys[c * 128 +: 128] else 0:u8 clip)", "keys[c * 128 +: 128]",
          "KIR-H131", "outside"),
)


def recorded(library: Path) -> None:
    """Records every wrong answer as if a user had: in the folder that `XDG_DATA_HOME` names, under its name."""
    for w in WRONG:
        save(w.of, w.name, w.answer, who="a test", provider="person", gate={}, folder=library / "kir" / "carriers" / w.of.folder.name)
