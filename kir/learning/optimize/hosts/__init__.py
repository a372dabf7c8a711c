"""Host code in the user's own file, edited so that it launches what was found: Python (`python`) and CUDA C++ (`cuda`)."""
