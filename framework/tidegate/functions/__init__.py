"""The user's contract: topics, services, process functions, context, error policies."""
