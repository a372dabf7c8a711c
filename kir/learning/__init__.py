"""What holds across kernels: forecasts, whole packages, cards, what they rest on and how they are made, tuned parameters, probes of passes, searches, packages.

Order: forecast, corpus, cards, tune, probes, evidence, optimize, induce, packages.
"""
