"""Expressions, operators, calls and places."""
