"""Declarations, loops, branches."""
