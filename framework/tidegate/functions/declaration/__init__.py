"""From decorated functions and classes to service definitions: signatures, types, checks."""
