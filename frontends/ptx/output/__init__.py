"""What was read, made plain: names that are used once where they are used, values instead of registers that hold them, and loops that count.

Order: cleanup, forward, loops.
"""
