"""Speed, measured: ``python -m benchmarks.run`` writes ``benchmarks/results/speed.md``."""
