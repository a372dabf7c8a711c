"""Host code in the user's own file, edited so that it launches what was found: Python (`python`), CUDA C++ (`cuda`), factories of TileLang (`tilelang`)."""
