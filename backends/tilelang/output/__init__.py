"""Statements, loops over elements, and the factory around a kernel."""
