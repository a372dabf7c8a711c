"""Copies that run in the background: cp.async, TMA, multicast."""
