"""Opcodes, family by family."""
