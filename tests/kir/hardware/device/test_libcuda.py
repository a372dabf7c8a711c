"""What libcuda is asked for, without a driver."""
from __future__ import annotations

from typing import Any

import pytest

from kir.hardware.device.libcuda import DYNAMIC_SHARED, Libcuda


class Recorded(Libcuda):
    """Keeps what would be called."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, list[Any]]] = []
        self.modules = {}

    def __call__(self, name: str, *arguments: Any) -> None:
        self.calls.append((name, [getattr(a, "value", a) for a in arguments]))


@pytest.mark.parametrize("size", [1, 48 * 1024, 48 * 1024 + 1])
def test_dynamic_shared_memory_is_asked_for_however_little(size: int) -> None:
    driver = Recorded()
    driver.function(b"", "k", size, ())
    assert any(name == "cuFuncSetAttribute" and given[1:] == [DYNAMIC_SHARED, size] for name, given in driver.calls), \
        "48 KiB of it beside static shared memory are more than a launch is given otherwise"


def test_none_is_not_asked_for() -> None:
    driver = Recorded()
    driver.function(b"", "k", 0, ())
    assert [name for name, _ in driver.calls] == ["cuModuleLoadData", "cuModuleGetFunction"]
