"""Answers that walks recognized travel with the evidence: a step names one by its hash, and the program that it makes holds its text."""
from __future__ import annotations

import re
from collections.abc import Iterable

from kir.learning.evidence.walked import Walked
from kir.lineage.carrier import declared
from kir.rewrite import pass_class

HASH = re.compile(r"[0-9a-f]{16,}")


def remember(walks: Iterable[Walked]) -> None:
    """Keep them in the user's library, so that the steps apply on any machine. Each is recognized anew: what does not meet its contract is not kept, and its
    step will not apply."""
    for each in walks:
        for t in each.transitions:
            if HASH.fullmatch(str(t.options.get("answer", ""))) and declared(pass_class(t.name)):
                for _ in pass_class(t.name).with_options(t.options).inverse_sites(each.program(t.after_text)):
                    pass
