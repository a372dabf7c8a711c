"""A source text goes from room to room without coming back: frontend, binding, normal form."""
from __future__ import annotations

import pytest

from benchmarks.surfaces.way_of_a_text import KERNELS, PAGE, way


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel[0])
def test_no_stage_of_reading_is_entered_again(kernel: tuple[str, str, str]) -> None:
    found = way(*kernel)
    assert found.back == []
    own = [room for room in found.rooms if room.startswith(f"frontends.{kernel[0]}.")]
    page = PAGE.read_text(encoding="utf-8")
    assert len(own) > 4 and [room for room in own if f"| `{room}` |" not in page] == []
