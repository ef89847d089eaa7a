"""Messages to actors and their replies."""
