"""Fails on import, as a plugin does whose own library is not installed."""
raise ImportError("it needs a library that is not there")
