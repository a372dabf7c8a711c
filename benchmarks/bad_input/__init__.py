"""Input that nobody should give, made by rule: each is refused where it is wrong, and none crashes."""
