"""The adversary: races, order of memory, what is left when a kernel ends."""
