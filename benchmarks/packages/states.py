"""What is known of the cases of a run: the last line about each, read without what runs them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

WAITING, BEGUN = "waiting", "begun"
"""States of a case before anything came of it."""


def known(results: Path) -> dict[str, dict[str, Any]]:
    """The last line about each case."""
    out: dict[str, dict[str, Any]] = {}
    if results.exists():
        for line in results.read_text(encoding="utf-8").splitlines():
            row = json.loads(line)
            out[row["case"]] = row
    return out
