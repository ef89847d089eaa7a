"""An app's log and actors for processes that run no worker."""
