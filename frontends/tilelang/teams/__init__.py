"""Which threads carry out what."""
