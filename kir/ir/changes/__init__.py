"""Two programs compared, node by node."""
