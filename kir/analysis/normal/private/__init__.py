"""Memory that one thread has alone: registers and arrays of its own, and what branches leave in them."""
