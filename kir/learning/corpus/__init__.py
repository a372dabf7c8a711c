"""Whole packages: every kernel found, read, written again and compared; counted, with the reasons of what is left.

Order: command, family, launch, interpreted, measured, rank, roundtrip, proved, lineages, lineage_page, patched_kernels, pretended, hook, startup.
"""
from __future__ import annotations

from kir.learning.corpus.roundtrip.count import Count, counted
from kir.learning.corpus.roundtrip.equal import same_program
from kir.learning.corpus.roundtrip.find import Place, files_of, place
from kir.learning.corpus.roundtrip.one import mentions
from kir.learning.corpus.roundtrip.run import of_surface, run

__all__ = ["Count", "Place", "counted", "files_of", "mentions", "of_surface", "place", "run", "same_program"]
