"""The leader's side: barriers, reports, timeouts, retention, trimming of internal topics."""
