"""A language model as a forecaster: asked with both programs and their difference, through the providers, the journal and the budget of carriers.

Its answer is read as probabilities of the eight bins and of failure; nothing of it is ever run.
"""
from __future__ import annotations

import difflib
import hashlib
import json
import math
import re
from collections.abc import Sequence
from dataclasses import field
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

from kir.base.dataclass import dataclass
from kir.base.diagnostic import KirError, error, usage
from kir.ir.canonical import content_hash
from kir.ir.printer import program_text
from kir.learning.forecast.distribution import BINS, Forecast, Pair
from kir.learning.forecast.features import sized
from kir.lineage.carrier.contract import Contract
from kir.lineage.carrier.providers.budget import Meter
from kir.lineage.carrier.providers.chat import Chat
from kir.lineage.carrier.providers.journal import Journal
from kir.lineage.carrier.providers.person import Editor
from kir.lineage.carrier.providers.provider import CarrierProvider, Message, Request
from kir.lineage.carrier.providers.settings import NO_BUDGETS, Settings, default_file, read_settings

ENDS = (0.125, *BINS, 8.0)
"""Where the first bin is taken to begin, the ends between bins, and where the last is taken to end."""
MOST_TEXT, MOST_LINES = 30_000, 400
"""Characters of a program and lines of a difference that are shown."""
OFF = 0.05
"""How far the probabilities of an answer may be from adding up to 1: so much is put right, more is an answer that was not thought out."""
TURNS = 2
"""How often it is asked: once more where the first answer cannot be read."""
NOTHING = Contract(Path("forecast"))
"""What stands where a carrier has its contract; no provider that is used here reads it."""
SYSTEM = f"""You forecast how much faster one GPU program is than another that computes the same. Programs are in KIR, a textual IR for GPU kernels:
a kernel has a grid, threads, loops, buffers in global, shared and register memory, copies, barriers and matrix instructions, all spelled out.

The speedup is the time of BEFORE divided by the time of AFTER, both with a warm L2, at the sizes and on the device that are given. Above 1, AFTER is faster.
Say how likely each of these eight ranges is, given that AFTER compiles and runs, and how likely it fails (does not compile, needs too many
resources, is wrong):

  0: below {BINS[0]}   {"   ".join(f"{i}: {a} to {b}" for i, (a, b) in enumerate(pairwise(BINS), 1))}   7: {BINS[-1]} and more

You are judged by proper scores (ranked probability, Brier): say what you believe, and spread it when you do not know. Think as long as you like; end
with one JSON object,

  {{"bins": [p0, p1, p2, p3, p4, p5, p6, p7], "fails": p}}

in which the eight add up to 1 and p lies between 0 and 1.
"""


@dataclass
class Language:
    """A forecaster over a provider. What it costs is set aside on the meter before each call and settled after it; `dollars` is the sum. Another machine does
    the work, for which it `waits`."""

    provider: CarrierProvider
    meter: Meter = field(default_factory=lambda: Meter("forecasts"))
    name: str = "language"
    waits: bool = True

    @classmethod
    def of_settings(cls, file: Path | None = None, fresh: bool = False) -> Language:
        """With the provider, limits and journal of the user's settings. Raises KirError KIR-E010 where they name no model and no person, and what
        `Chat.of` raises."""
        import platformdirs

        settings: Settings = read_settings(file)
        meter = Meter("forecasts", settings.budget.run)
        if settings.provider == "person":
            return cls(Editor("a person"), meter)
        if settings.provider == "recorded":
            raise usage("KIR-E010", "the settings name no model to forecast with",
                        needs=f'provider = "openai" or "anthropic", with a model, in {file or default_file()}',
                        attempt="--model learned")
        kept = Path(platformdirs.user_state_dir("kir")) / "forecasts"
        return cls(Chat.of(settings, settings.provider, Journal(kept, settings.provider, not fresh)), meter)

    @property
    def dollars(self) -> float:
        """What was spent so far."""
        return float(self.meter.root.spent.dollars)

    def __call__(self, pair: Pair) -> Forecast:
        """The forecast. Raises KirError: KIR-E007 for sizes that are no launch, KIR-E008 for answers that are none, KIR-H201 when the budget ends,
        KIR-H3xx for what the server does."""
        for p in (pair.before, pair.after):
            sized(p, pair.sizes)
        messages = [Message("user", question(pair))]
        inner = self.meter.child("forecast", NO_BUDGETS.carrier)
        for turn in range(TURNS):
            reply = self.provider.propose(Request(NOTHING, SYSTEM, tuple(messages), templates(), turn), inner)
            try:
                return read(reply.text, reply.who)
            except KirError as bad:
                if turn == TURNS - 1:
                    raise
                why = f"That cannot be read: {bad.diagnostics[0].message}. Answer with the JSON object alone."
                messages += [Message("assistant", reply.text), Message("user", why)]
        raise AssertionError


def templates() -> str:
    """The SHA-256 of what is the same in every question."""
    return hashlib.sha256(SYSTEM.encode()).hexdigest()


def question(pair: Pair) -> str:
    """What a model is asked of a pair: device, sizes, step, both programs, their difference."""
    texts = [program_text(p) for p in (pair.before, pair.after)]
    changes = list(difflib.unified_diff(texts[0].splitlines(), texts[1].splitlines(), "BEFORE", "AFTER", lineterm="", n=2))
    d, a = pair.target.device, pair.target.architecture
    out = [f"Device: {d.name} ({a.name}): {d.sm_count} SMs at {d.clock / 1e9:.2f} GHz, {d.bandwidth / 1e12:.2f} TB/s, L2 {d.l2 >> 20} MB, "
           f"{a.shared_per_sm >> 10} KB of shared memory an SM, {d.tensor.f16 / 1e12:.0f} TFLOP/s with f16 matrix units, {d.scalar.f32 / 1e12:.0f} with f32.",
           f"Surface: {pair.surface}. Sizes: {', '.join(f'{k} = {v}' for k, v in pair.sizes.items()) or 'as written in the programs'}."]
    if pair.step:
        out.append(f"The step from BEFORE to AFTER: {pair.step}")
    out += [f"\n{name} ({content_hash(p)[:12]}):\n```kir\n{_cut(text)}```"
            for name, p, text in zip(("BEFORE", "AFTER"), (pair.before, pair.after), texts, strict=True)]
    shown = changes[:MOST_LINES] + ([f".. {len(changes) - MOST_LINES} lines more"] if len(changes) > MOST_LINES else [])
    return "\n".join([*out, "\nThe difference:\n```diff", *shown, "```"])


def _cut(text: str) -> str:
    return text if len(text) <= MOST_TEXT else f"{text[:MOST_TEXT]}\n.. cut here\n"


def read(text: str, who: str) -> Forecast:
    """A forecast from an answer: the last JSON object in it with `bins` and `fails`. Raises KirError KIR-E008."""
    found = _object(text)
    if found is None:
        raise _none(who, 'it holds no JSON object with "bins" and "fails"')
    bins, fails = found["bins"], found["fails"]
    if not isinstance(bins, list) or len(bins) != len(BINS) + 1 or not all(map(_probability, bins)):
        raise _none(who, f'"bins" are not {len(BINS) + 1} probabilities')
    if not _probability(fails):
        raise _none(who, '"fails" is no probability')
    total = math.fsum(bins)
    if abs(total - 1.0) > OFF:
        raise _none(who, f'"bins" add up to {total:g}')
    return of_bins([b / total for b in bins], float(fails), who)


def of_bins(bins: Sequence[float], fails: float, who: str = "language") -> Forecast:
    """The distribution with these probabilities of the eight bins, even in the logarithm inside each."""
    levels = (0.0, *(min(1.0, p) for p in accumulate(bins)))
    return Forecast((*levels[:-1], 1.0), tuple(math.log(e) for e in ENDS), fails, model=f"language: {who}" if who != "language" else who)


def _object(text: str) -> dict[str, Any] | None:
    for match in reversed(list(re.finditer(r"\{", text))):
        try:
            value, _ = json.JSONDecoder().raw_decode(text, match.start())
        except (ValueError, RecursionError):
            continue
        if isinstance(value, dict) and {"bins", "fails"} <= value.keys():
            return value
    return None


def _probability(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and 0.0 <= value <= 1.0


def _none(who: str, why: str) -> KirError:
    return error("KIR-E008", f"{who} gave no forecast: {why}", needs='{"bins": [eight probabilities], "fails": a probability}')
