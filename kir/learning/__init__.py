"""What holds across kernels: forecasts, cards, tuned parameters, whole packages.

Order: forecast, cards, corpus, tune.
"""
