"""Indices that one question is too hard for, or says too little of: numbers of 32 bits, tiles by number, and what tensors hold.

Order: widths, numbered, contents.
"""
