"""The form of an instruction: syntax, operands, bits."""
