"""From the code of threads to the tiles that it came from."""
