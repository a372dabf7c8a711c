"""Loops of plain mode compiled with LLVM, statement by statement over all lanes as the NumPy interpreter runs them. Order: scalars, signature, emitter, compiled, loops."""
