"""Numbers, bits, rounding and special functions."""
