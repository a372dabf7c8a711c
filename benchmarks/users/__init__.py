"""What a user sees: the first minutes with a kernel, the notebook, pictures of the pages."""
