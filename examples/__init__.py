"""Small apps that show what Tidegate does."""
