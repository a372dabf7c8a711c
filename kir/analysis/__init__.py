"""Analyses: what is known of integers, which memory a statement touches, what may be exchanged, what a program needs of a machine."""
from __future__ import annotations

from kir.analysis.facts import Facts
from kir.analysis.normal_form import normalize
from kir.analysis.simplify import simplify

__all__ = ["Facts", "normalize", "simplify"]
