"""Keyed state: the kinds (`kinds`), live values between commits (`overlay`, `cells`), and the stores that hold them."""
