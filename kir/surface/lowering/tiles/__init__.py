"""Whole tiles, statement by statement, as the code of threads."""
