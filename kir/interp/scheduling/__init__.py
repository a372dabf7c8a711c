"""Threads in turns: barriers and asynchronous operations."""
