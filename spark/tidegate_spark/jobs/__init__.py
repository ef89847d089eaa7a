"""Jobs: from topics and tables to tables (exactly once) and topics (at least once), resumable."""

from __future__ import annotations
