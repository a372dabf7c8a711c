"""How much a program does: its traces, places, registers, and the SM that the traces run on.

Order: numbers, trace, arithmetic, places, register_pressure, frames, values, stream, schedule, work.
"""
