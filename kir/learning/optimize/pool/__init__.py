"""Candidates judged by a pool: processes of this machine, one for each of its GPUs, or a Ray cluster; one task a candidate, results by content hash.

Order: tasks, devices, engines, cluster, judge.
"""
