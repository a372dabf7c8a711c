"""What holds across kernels: cards, tuned parameters, whole packages.

Order: cards, corpus, tune.
"""
