"""The implementation of each command, apart from its options."""
