"""Registers before they are read: what each instruction reads and writes, what kind of number each holds, which keep a value across blocks.

Order: bases, kinds, arrays, lasting.
"""
