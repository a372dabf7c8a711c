"""How loops and tiles meet their ends: tails, masks, guards, remainders."""
