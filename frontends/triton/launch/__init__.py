"""Autotuning, and the binding that a launch gives."""
