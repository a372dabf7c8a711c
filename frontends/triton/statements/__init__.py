"""Statements, expressions and loops."""
