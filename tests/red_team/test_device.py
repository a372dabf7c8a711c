"""The red team on a GPU: every raw exploit refused for its reason, every honest kernel accepted, nothing harmed in between."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kir.gate.gpu import Gpu, Options, gate_gpu

from .device import judged, program_judged, refused_for_the_right_reason, timed
from .exploits import PROGRAMS, Exploit
from .honest import HONEST, Honest
from .kernels import KERNELS, TIMED

pytestmark = pytest.mark.gpu


@pytest.fixture(scope="module")
def gpu(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gpu]:
    with Gpu.open(tmp_path_factory.mktemp("gate")) as made:
        yield made


@pytest.mark.parametrize("exploit", KERNELS, ids=lambda e: e.name)
def test_an_exploit_is_refused(gpu: Gpu, exploit: Exploit) -> None:
    verdict = judged(gpu, exploit.text)
    assert refused_for_the_right_reason(exploit, verdict), verdict.reason


@pytest.mark.parametrize("exploit", [e for e in KERNELS if e.image and e.words], ids=lambda e: e.name)
def test_an_exploit_is_refused_without_a_look_into_its_cubin(gpu: Gpu, exploit: Exploit) -> None:
    verdict = judged(gpu, exploit.text, unseen=True)
    assert refused_for_the_right_reason(exploit, verdict, unseen=True), verdict.reason


@pytest.mark.parametrize("exploit", [e for e in PROGRAMS if not e.alone], ids=lambda e: e.name)
def test_a_cheating_program_is_refused_by_the_device_alone(gpu: Gpu, exploit: Exploit) -> None:
    said = program_judged(gpu, exploit)
    assert said and any(w in said for w in exploit.words), said


def test_after_all_exploits_an_honest_kernel_is_judged_as_before(gpu: Gpu) -> None:
    verdict = judged(gpu, against=True)
    assert verdict.accepted and verdict.device is not None and verdict.device.against, verdict.reason
    low, high = verdict.device.against["long"]["times_faster"]["interval"]
    assert low < 1.02 and high > 0.98, "the same kernel on both sides, in turns"
    for _, what, text, times in TIMED:
        assert timed(judged(gpu, text)) > times * timed(verdict), what


def test_a_fork_server_that_was_killed_is_started_again(gpu: Gpu) -> None:
    """Between two verdicts something ends the processes that fork candidates and oracles: the next verdict is as the one before."""
    assert judged(gpu).accepted
    for server in (gpu.executors, gpu.oracles):
        server._process.kill()
        server._process.wait()
    again = judged(gpu)
    assert again.accepted, again.reason


@pytest.mark.parametrize("honest", [h for h in HONEST if h.here()], ids=lambda h: h.name)
def test_an_honest_kernel_passes(gpu: Gpu, honest: Honest) -> None:
    program, problem, surface = honest.loaded()
    quick = max((s for s in problem.shapes_for(program) if "timed" not in s.tags), key=lambda s: sum(s.sizes.values()), default=problem.shapes[-1])
    verdict = gate_gpu(gpu, program, problem, surface, options=Options(shapes=(quick.name,), panel=False, interpret=False, budget=0.2))
    assert verdict.accepted, verdict.reason
