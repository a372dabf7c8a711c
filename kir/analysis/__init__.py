"""Analyses: what is known of integers, which memory a statement touches, what may be exchanged, what a program needs of a machine."""
from __future__ import annotations

from kir.analysis.access import Access, Aliases, accesses, independent, is_invariant, may_overlap
from kir.analysis.affine import Affine, affine
from kir.analysis.facts import Facts
from kir.analysis.footprint import Footprint, footprint
from kir.analysis.normal_form import normalize
from kir.analysis.simplify import simplify

__all__ = ["Access", "Affine", "Aliases", "Facts", "Footprint", "accesses", "affine", "footprint", "independent", "is_invariant",
           "may_overlap", "normalize", "simplify"]
