"""How good forecasts are, from the shipped data, on a CPU: ``python -m benchmarks.forecast train`` and ``table``."""
