"""Ready-made keyed services: mounted on an app in a line, and then told, asked, or fed by a topic.

    limiter = RateLimiter(app, rate=10, burst=20)
    if (await limiter.acquire("ann")).allowed: ...

Each is an ordinary service of the app, in `.service`: its state, its timers and its messages are committed, moved and
looked at like those of any other. They use nothing of Tidegate that is not public.
"""

from __future__ import annotations

from tidegate_services.counters import Count, Counters, Increment, Standing, Top
from tidegate_services.deduplicator import Deduplicator, Offer, Verdict
from tidegate_services.rate_limiter import Acquire, Decision, RateLimiter
from tidegate_services.session_tracker import Close, Current, Session, SessionTracker, Touch

__all__ = (
    "Acquire",
    "Close",
    "Count",
    "Counters",
    "Current",
    "Decision",
    "Deduplicator",
    "Increment",
    "Offer",
    "RateLimiter",
    "Session",
    "SessionTracker",
    "Standing",
    "Top",
    "Touch",
    "Verdict",
)
