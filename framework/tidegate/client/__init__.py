"""Access to an app's log and actors from processes that run no worker."""
