"""`T.Kernel`, factories around it, and the language joined."""
