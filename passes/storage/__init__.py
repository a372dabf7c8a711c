"""How long memory is held, and who shares it."""
