"""From records to handlers: the hot loop, the context, order per key, errors."""
