"""What holds across kernels: forecasts, whole packages, cards, what they rest on and how they are made, tuned parameters.

Order: forecast, corpus, cards, evidence, induce, tune.
"""
