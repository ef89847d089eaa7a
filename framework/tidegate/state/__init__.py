"""Keyed state: the kinds (`kinds`), live values between commits (`overlay`), and the stores that hold them."""
