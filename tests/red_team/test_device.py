"""The red team on a GPU: every raw exploit refused for its reason, every honest kernel accepted, nothing harmed in between."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kir import machine
from kir.gate.gpu import Gpu, Options, gate_gpu

from .device import judged, refused_for_the_right_reason
from .exploits import KERNELS, Exploit
from .honest import HONEST, Honest

pytestmark = pytest.mark.gpu


@pytest.fixture(scope="module")
def gpu(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gpu]:
    with Gpu.open(tmp_path_factory.mktemp("gate")) as made:
        yield made


@pytest.mark.parametrize("exploit", KERNELS, ids=lambda e: e.name)
def test_an_exploit_is_refused_and_the_next_kernel_is_judged(gpu: Gpu, exploit: Exploit) -> None:
    verdict, honest = judged(gpu, exploit), judged(gpu, None)
    assert honest.accepted, honest.reason
    assert refused_for_the_right_reason(exploit, verdict, honest), verdict.reason


@pytest.mark.parametrize("honest", [h for h in HONEST if not h.zoo or machine.package_version("liger-kernel")], ids=lambda h: h.name)
def test_an_honest_kernel_passes(gpu: Gpu, honest: Honest) -> None:
    program, problem, surface = honest.loaded()
    shapes = problem.timed_for(program)
    smallest = min(shapes, key=lambda s: sum(s.sizes.values()))
    verdict = gate_gpu(gpu, program, problem, surface, options=Options(shapes=(smallest.name,), panel=False, interpret=False, budget=0.4))
    assert verdict.accepted, verdict.reason
