"""Dtypes and shapes of values."""
