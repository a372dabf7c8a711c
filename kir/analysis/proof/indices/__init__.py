"""Indices that one question is too hard for, or says too little of: tiles by number, and what tensors hold.

Order: numbered, contents.
"""
