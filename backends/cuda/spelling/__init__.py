"""How literals and PTX are spelled in CUDA C++."""
