"""Jobs: from topics and tables to tables and topics, exactly once where that can be, resumable everywhere."""

from __future__ import annotations
