"""A kernel in, a faster kernel out: plans from what is stored, ranked by forecast, gated under a budget, logged so that it replays.

Order: plan, words, lift, several, forms, sources, schedules, starts, events, policy, candidates, judge, pool, search, hosts, inputs, outputs, report.
"""
