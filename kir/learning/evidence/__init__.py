"""What cards rest on: walked kernels in a compact form that ships, the trials and outcomes of cards, and the walks that bring more.

Order: walked, archive, forwards, walks, ledger.
"""
