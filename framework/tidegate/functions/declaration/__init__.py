"""Builds service definitions from decorated functions and classes: signatures, types, checks."""
