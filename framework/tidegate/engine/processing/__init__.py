"""From records to handlers: the hot loop, the context, order per key, actor messages, errors."""
