"""What `kir optimize` finds: held-out instances beside FlagGems' Triton kernels, and naive programs brought back to their experts' speed."""
