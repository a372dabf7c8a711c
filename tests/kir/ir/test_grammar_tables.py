"""The tables of grammars lie where an installation has put them, and no command works them out again."""
from __future__ import annotations

from pathlib import Path

import pytest

from kir.ir.grammar import tables


def test_kept_beside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "BESIDE", tmp_path / "beside")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "own"))
    tables._tables.cache_clear()
    try:
        file = tables.keep_beside("pipeline")
        assert file.parent == tmp_path / "beside"
        tables._tables.cache_clear()
        with monkeypatch.context() as without:
            without.setattr(tables, "Lark", None)  # nothing is worked out
            assert tables._tables("pipeline", ("start",), None) == file.read_bytes().partition(b"\n")[2]
        file.write_bytes(file.read_bytes()[:-1])  # torn: worked out anew
        (own,) = (tmp_path / "own" / "kir" / "grammar").iterdir()
        own.unlink()
        tables._tables.cache_clear()
        assert tables.parser.__wrapped__("pipeline").parse("unroll@main/k")
        assert own.is_file()
    finally:
        tables._tables.cache_clear()
