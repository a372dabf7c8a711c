"""Products on tensor cores, and what feeds them."""
