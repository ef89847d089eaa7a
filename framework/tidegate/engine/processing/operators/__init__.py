"""What a task does with a record: one operator for each kind of input, and the hot loop."""
