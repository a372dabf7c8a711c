"""Plain words: what a newcomer would not understand at first reading, and what stands for it."""
from __future__ import annotations

import re
from functools import cache

import pytest

from tests.test_layout import ROOT, tracked

PLAIN = {
    r"\b(taken|take|takes|taking|took) back\b": "undo",
    r"\bha(s|ve) no word for\b": "cannot say, does not support",
    r"\bstands? in (its|the|their) way\b": "blocks",
    r"\bwhere threads meet\b": "where threads synchronize",
    r"\btakes? up a killed\b": "resumes an interrupted",
    r"\bstrangers?\b": "others, newcomers",
    r"--(look|fresh|steps-back|general)\b": "--search-limit, --restart, --max-undo, --fallback-kernel",
}
KEPT = ("CHANGELOG.md", "tests/test_words.py", "docs/decisions/", "benchmarks/results/", "skills/lineages/", "skills/packages/", "skills/experts/")
"""Old words stay in the table of what changed, in decisions of their time, in stored results, and in sources of others."""


@cache
def texts() -> tuple[tuple[str, str], ...]:
    """What is read by people, by name."""
    return tuple((name, (ROOT / name).read_text(encoding="utf-8")) for name in tracked()
                 if name.endswith((".py", ".md", ".toml", ".j2")) and not name.startswith(KEPT) and not (ROOT / name).is_symlink())


@pytest.mark.parametrize("word", PLAIN)
def test_sentences_and_options_are_plain(word: str) -> None:
    part = max(filter(None, re.split(r"\([^)]*\)|\w\?|\\b", word)), key=len)  # it stands in all that the word is: few texts have it
    found = [f"{name}:{line}" for name, text in texts() if part in text and re.search(word, text)
             for line, said in enumerate(text.splitlines(), 1) if re.search(word, said)]
    assert found == [], f"say {PLAIN[word]}"
