"""Barriers, atomics, and what one lane does for all."""
