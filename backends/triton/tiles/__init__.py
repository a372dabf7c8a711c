"""Expressions, memory and statements of whole tiles as Triton."""
