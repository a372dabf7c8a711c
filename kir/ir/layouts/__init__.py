"""How elements lie in memory and over lanes."""
