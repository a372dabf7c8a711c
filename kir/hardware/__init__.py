"""Architectures and devices, what this machine has, the driver, and confined processes.

Order: confine, device, machine, target.
"""
