"""Stages in flight: rings, roles of warps, overlapped products."""
