"""The operators of a task, one for each kind of input, and the hot loop."""
