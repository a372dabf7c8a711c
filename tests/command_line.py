"""The command line, called in the process of a test."""
from __future__ import annotations

import pytest

from kir.faces.cli._main import run


def called(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    """The exit code of a command, what it prints, and what it says on standard error."""
    code = run(list(arguments))
    out = capsys.readouterr()
    return code, out.out, out.err
