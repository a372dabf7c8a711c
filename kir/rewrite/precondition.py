"""Preconditions, declared conditions of a pass, and their verdicts: what a pass imports to declare one."""
from __future__ import annotations

from kir.rewrite.base import Evaluate, Precondition
from kir.rewrite.verdict import ANYWHERE, Category, Context, Verdict, VerdictKind, decided, guarded, proved, refuted, unknown, unless

__all__ = ["ANYWHERE", "Category", "Context", "Evaluate", "Precondition", "Verdict", "VerdictKind", "decided", "guarded", "proved",
           "refuted", "unknown", "unless"]
