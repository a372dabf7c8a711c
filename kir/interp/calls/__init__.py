"""Calls of instructions, family by family."""
