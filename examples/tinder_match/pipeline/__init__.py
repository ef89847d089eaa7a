"""Analysis of the matches: tables of events, of minutes, hours and days, and of people; and a report.

tidegate pipeline run examples.tinder_match.pipeline --once
python -m examples.tinder_match.pipeline report
"""

from __future__ import annotations

from examples.tinder_match.app import app
from examples.tinder_match.pipeline.jobs import collect, people, windows

__all__ = ("app", "collect", "people", "windows")
