"""Triton's own vocabulary: loads and stores, reductions, hints, random numbers, inline assembly."""
