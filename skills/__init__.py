"""Data: problems, experts, lineages and cards."""
