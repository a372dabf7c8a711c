"""Other roundings, under a bound."""
