"""The page of other architectures says what its command says."""
from __future__ import annotations

import pytest

from benchmarks.surfaces.architectures import PAGE, main, row


@pytest.mark.parametrize("name", [
    "gemm_sm90_nt_wide",
    pytest.param("gemm_sm80", marks=pytest.mark.nvcc),
    pytest.param("fmha_even_triton", marks=pytest.mark.triton),
])
def test_a_row_is_as_written(name: str) -> None:
    assert row(name) in PAGE.read_text().splitlines()


def test_a_word_that_is_no_pipeline_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 2 and "no pipeline is called --help; there are" in capsys.readouterr().err
