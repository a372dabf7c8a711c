"""Commands for lineages: lineage, replay, report."""
