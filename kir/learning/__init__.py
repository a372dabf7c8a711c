"""What holds across kernels: forecasts, cards, tuned parameters, whole packages, probes of passes.

Order: forecast, cards, corpus, tune, probes.
"""
