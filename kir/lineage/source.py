"""Where an expert comes from: the names of `kir.reading` that a lineage begins with."""

from __future__ import annotations

from kir.reading import Expert, kernel_of, load_expert, located, promised, read_binding, read_generic, read_text

__all__ = ["Expert", "kernel_of", "load_expert", "located", "promised", "read_binding", "read_generic", "read_text"]
