"""Schedules that are made for a form of kernels, and were learned on none: what is counted (`counters`), running sums (`scans`)."""
