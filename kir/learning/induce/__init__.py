"""From evidence to skills: transitions of one kind joined over kernels, what they have in common, what comes together, and trials.

Order: unify, uses, relate, composites, hypotheses, trials, ablation, transfers, mechanism, prose, rank, build.
"""
