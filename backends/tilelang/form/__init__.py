"""Programs brought into TileLang's form: whole tiles are buffers, never values."""
