"""Values of the host, numbers and names."""
