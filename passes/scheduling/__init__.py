"""In which order CTAs work, and how long they stay: rasters, persistent kernels, launches."""
