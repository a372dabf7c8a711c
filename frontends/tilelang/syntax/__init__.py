"""Parameters and ways out of a block, as Python's tree says them."""
