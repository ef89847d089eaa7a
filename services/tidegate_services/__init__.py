"""Ready-made keyed services: mounted on an app in one line, and used by messages or fed by a topic.

    limiter = RateLimiter(app, rate=10, burst=20)
    if (await limiter.acquire("ann")).allowed: ...

Each is an ordinary service of the app, available as `.service`: its state, timers and messages are committed, rescaled
and queried like those of any other service. They use public names of Tidegate only.
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
