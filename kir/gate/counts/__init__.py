"""How much a program does: work, places, registers."""
