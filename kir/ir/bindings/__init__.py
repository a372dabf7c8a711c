"""What a launch says, checked, and a program specialized to it."""
