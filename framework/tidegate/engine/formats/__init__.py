"""What the engine writes into topics and reads back: commit markers, barriers, control records, messages to actors."""
