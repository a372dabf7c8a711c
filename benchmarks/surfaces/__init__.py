"""What of a kernel each surface and each architecture takes: the tables of crossing, emitting and lineages."""
