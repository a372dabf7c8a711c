"""What holds across kernels: forecasts, cards, tuned parameters, whole packages, searches.

Order: forecast, cards, corpus, tune, optimize.
"""
