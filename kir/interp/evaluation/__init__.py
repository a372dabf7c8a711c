"""Expressions, statements and loops."""
