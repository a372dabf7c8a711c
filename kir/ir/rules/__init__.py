"""What a right program is: verified, named cleanly, generic or not."""
