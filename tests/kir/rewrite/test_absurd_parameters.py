"""Absurd parameters of passes come to a program or to a refusal, never to an internal error; a sample of `python -m benchmarks.bad_input.absurd`."""
from __future__ import annotations

import resource
from collections.abc import Iterator

import numpy as np
import pytest

from benchmarks.bad_input.absurd import CASES, Attempt, attempts, fault
from kir.base.diagnostic import KirError
from kir.interp import run
from kir.ir.parser import parse_program
from kir.ir.rules.verify import verify
from kir.rewrite.pipelines.pipeline import run as apply

EVERY, FILES = 11, 9
"""One attempt of so many of the passes, one of so many: primes to the lists of values, so that all of them have their turn."""
SWIZZLED = """kir 1
program turn
  in X: f16[64, 64]
  out Y: f16[64, 64]
kernel main grid (i: 1) threads 128
  shared Xs: f16[64, 64]{layout}
  copy X -> Xs
  Y = trans(Xs, 1, 0)
"""


@pytest.fixture
def little_memory() -> Iterator[None]:
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (12 << 30 if before[1] == resource.RLIM_INFINITY else min(12 << 30, before[1]), before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_AS, before)


def _sample() -> list[Attempt]:
    names = sorted(f.stem.replace("_", "-") for f in CASES.glob("*.toml"))[::FILES]
    return [a for k, a in enumerate(attempts((*names, "swizzle-shared"))) if k % EVERY == 0]


def test_a_sample_of_absurd_parameters(little_memory: None) -> None:
    chosen = _sample()
    assert len(chosen) > 150 and len({a.case.pipeline.steps[a.step].name for a in chosen}) > 7
    assert [(str(a), wrong) for a in chosen if (wrong := fault(a))] == []


@pytest.mark.parametrize("options", ["shift=200", "shift=30", "bits=30 shift=30", "base=65537", "bits=65537 base=4 shift=65537", "base=0 shift=2147483647"])
@pytest.mark.parametrize("force", ["", " force"])
def test_a_swizzle_of_bits_that_no_offset_has(options: str, force: str, little_memory: None) -> None:
    with pytest.raises(KirError) as raised:
        apply(parse_program(SWIZZLED.format(layout="")), f"swizzle-shared{{{options}}}@main/Xs{force}")
    assert "are none of an offset, which has 31" in str(raised.value) and raised.value.diagnostics[0].anchor


@pytest.mark.parametrize("layout", ["3, 4, 200", "3, 4, 40", "20, 4, 20", "1, 70, 1"])
def test_a_layout_with_such_a_swizzle_is_refused(layout: str) -> None:
    found = verify(parse_program(SWIZZLED.format(layout=f" layout swizzle({layout})"), "turn.kir"))
    assert [d.id for d in found] == ["KIR-L002"] and found[0].origin is not None and found[0].origin.line == 6


@pytest.mark.parametrize("layout", ["3, 4, 3", "1, 4, 26", "3, 4, 24"])
def test_a_long_swizzle_takes_no_more_memory_than_its_elements_need(layout: str, little_memory: None) -> None:
    program = parse_program(SWIZZLED.format(layout=f" layout swizzle({layout})"))
    x = np.arange(4096, dtype=np.float16).reshape(64, 64)
    out = run(program, {"X": x}, mode="check")
    assert not out.findings and (out.outputs["Y"] == x.T).all()
