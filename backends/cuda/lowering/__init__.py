"""From tiles to threads before anything is written, and what the host passes."""
