"""CUDA's own vocabulary: built-in functions, cooperative groups, inline PTX, libraries."""
