"""Assignments, branches and loops."""
