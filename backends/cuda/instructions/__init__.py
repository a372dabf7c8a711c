"""Calls of instructions: Hopper's, im2col, and the rest of the table."""
