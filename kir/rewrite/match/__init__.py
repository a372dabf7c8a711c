"""Matching and rewriting for passes: places with edits, loops, accesses, capacity, names; beside them what several families share.

Plugins may use it as well. The small ones are imported from here; the rest from their modules.
"""
from kir.rewrite.match.accesses import allocated, is_read, loads_of, regions_of, span_of
from kir.rewrite.match.capacity import fits_shared, hardware_of, shared_bytes, whole_warps, within_shared
from kir.rewrite.match.cursor import block_and_index, edited, matched, matched_as, node_as, params_as, sibling, splice
from kir.rewrite.match.loops import counting, from_zero, is_counted
from kir.rewrite.match.names import fresh_at, fresh_names, fresh_var, names_at, values_for

__all__ = ["allocated", "block_and_index", "counting", "edited", "fits_shared", "fresh_at", "fresh_names",
           "fresh_var", "from_zero", "hardware_of", "is_counted", "is_read", "loads_of", "matched", "matched_as", "names_at", "node_as",
           "params_as", "regions_of", "shared_bytes", "sibling", "span_of", "splice", "values_for", "whole_warps", "within_shared"]
