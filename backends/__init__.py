"""IR -> source, build and launch, one sub-package per surface."""
