"""Where elements lie: padding, swizzles, packing."""
