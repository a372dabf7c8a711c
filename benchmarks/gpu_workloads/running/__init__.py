"""How workloads are prepared, launched and timed on a GPU."""
