"""Analyses: what is known of integers, which memory a statement touches, what may be exchanged, what a program needs of a machine.

Order: branch_definitions, clipping, domain, elements, facts, integers, loops, order, access, bounds, boundary_masks, simplify, heuristics,
normal, solver, tiles, target, uniform, proof, algebra.
"""
from __future__ import annotations

from kir.analysis.access import Access, Aliases, accesses, independent, is_invariant, may_overlap
from kir.analysis.facts import Facts
from kir.analysis.integers.affine import Affine, affine
from kir.analysis.normal.normal_form import normalize
from kir.analysis.simplify import simplify
from kir.analysis.target.footprint import Footprint, footprint

__all__ = ["Access", "Affine", "Aliases", "Facts", "Footprint", "accesses", "affine", "footprint", "independent", "is_invariant",
           "may_overlap", "normalize", "simplify"]
