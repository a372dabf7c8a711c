"""Commands that read kernels: bind, capture, corpus, parse."""
