"""Micro-benchmarks: every question has its kernel, and answers are read off clocks and events as they say."""
from __future__ import annotations

import re
import struct
from typing import Any

import pytest

from benchmarks.micro.run import Asking
from benchmarks.micro.source import source
from benchmarks.micro.suite import Question, questions


@pytest.mark.parametrize("capability", [(8, 0), (9, 0), (12, 0)])
def test_every_question_has_a_kernel_and_a_name_of_its_own(capability: tuple[int, int]) -> None:
    kernels = set(re.findall(r"(?:KERNEL|CHASE)\((\w+)", source(capability)))
    asked = list(questions(capability, 132))
    assert {q.kernel for q in asked} <= kernels
    assert len({q.name for q in asked}) == len(asked)
    assert any("wgmma" in q.name for q in asked) == (capability == (9, 0))


class Pretended:
    """A device on which every CTA takes 2048 clocks and every pair of events is 1 ms apart."""

    def __init__(self) -> None:
        self.launched: list[tuple[str, int]] = []

    def kernel(self, image: bytes, name: str, shared: int) -> str:
        return name

    def launch(self, kernel: str, grid: tuple[int], threads: int, values: list[Any]) -> None:
        self.launched.append((kernel, values[3].value))

    def event(self) -> object:
        return object()

    def record(self, event: object) -> None: ...

    def elapsed(self, start: object, stop: object) -> float:
        return 1e-3

    def download(self, pointer: int, size: int) -> bytes:
        return struct.pack(f"{size // 8}q", *([2048] * (size // 8)))


@pytest.mark.parametrize(("question", "answer"), [
    (Question("a", "k", "cycles", 64 * 16), 2.0),
    (Question("b", "k", "per clock", 4096.0), 2.0),
    (Question("c", "k", "bytes a second", 1e9), 1e12),
    (Question("d", "k", "seconds", 1, launches=100), 1e-5),
])
def test_an_answer_is_read_as_its_question_says(question: Question, answer: float) -> None:
    asking = Asking.__new__(Asking)
    device = Pretended()
    asking.__dict__.update(driver=device, about={"sms": 4}, image=b"", kernels={}, out=0, buffer=0, chained=None)
    assert asking.ask(question)["best"] == pytest.approx(answer)
    assert device.launched[0][0] == "waiting"  # the host is ahead before anything is timed


def test_a_chain_is_walked_from_another_slot_each_time() -> None:
    asking = Asking.__new__(Asking)
    device = Pretended()
    asking.__dict__.update(driver=device, about={"sms": 4}, image=b"", kernels={}, out=0, buffer=0, chained=None)
    asking.ask(Question("a", "far", "cycles", 16, chain=(1024, 32)))
    starts = [p for name, p in device.launched if name == "far"]
    assert len(set(starts)) == len(starts) and all(p % 32 == 0 and p < 1024 * 32 for p in starts)
