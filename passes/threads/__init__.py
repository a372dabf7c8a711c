"""Work distributed over the threads and warps of a CTA."""
