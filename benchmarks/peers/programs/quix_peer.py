"""The workloads with Quix Streams: stateful functions over RocksDB with changelogs."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

from quixstreams import Application

WINDOW, GRACE = int(os.environ["BENCH_WINDOW_MS"]), int(os.environ["BENCH_GRACE_MS"])


def count_like(like: dict[str, Any], state: Any) -> dict[str, Any] | None:
    n = state.get("n", 0) + 1
    state.set("n", n)
    return {"who": like["liked"], "n": n} if n % 2 == 0 else None


def likes(app: Application, source: Any, output: Any) -> None:
    counts = app.dataframe(source).apply(count_like, stateful=True)
    counts.filter(lambda count: count is not None).to_topic(output)


class Windows:
    """Counts views in windows. Quix has no timers, so due results are emitted with the campaign's next view."""

    def __init__(self) -> None:
        self._told: dict[str, float] = {}
        self._changed: dict[str, set[int]] = {}

    def __call__(self, view: dict[str, Any], state: Any) -> list[dict[str, Any]]:
        campaign, window = view["campaign"], view["at"] - view["at"] % WINDOW
        if window + WINDOW + GRACE <= state.get("time", 0):
            return []
        known = state.get(window, 0)
        state.set(window, known + 1)
        changed = self._changed.setdefault(campaign, set())
        changed.add(window)
        due = [] if known else self._close(view["at"], window, campaign, state)
        now = time.monotonic()
        if now - self._told.setdefault(campaign, now) >= 1:
            due += [counted(campaign, item, state.get(item), last=False) for item in sorted(changed)]
            changed.clear()
            self._told[campaign] = now
        return due

    def _close(self, at: int, window: int, campaign: str, state: Any) -> list[dict[str, Any]]:
        """A new window has begun: others may be over."""
        opened = [*state.get("open", []), window]
        state.set("time", max(at, state.get("time", 0)))
        over = [item for item in opened if item + WINDOW + GRACE <= state.get("time")]
        state.set("open", [item for item in opened if item not in over])
        closed = [counted(campaign, item, state.get(item), last=True) for item in over]
        for item in over:
            state.delete(item)
            self._changed[campaign].discard(item)
        return closed


def counted(campaign: str, window: int, count: int, *, last: bool) -> dict[str, Any]:
    return {"campaign": campaign, "window": window, "count": count, "final": last}


def ads(app: Application, source: Any, output: Any) -> None:
    campaigns = json.loads(Path(os.environ["BENCH_CAMPAIGNS"]).read_text())
    views = app.dataframe(source).filter(lambda ad: ad["event_type"] == "view")
    views = views.apply(lambda ad: {"campaign": campaigns[ad["ad_id"]], "at": ad["event_time"]})
    views.group_by("campaign").apply(Windows(), stateful=True, expand=True).to_topic(output)


def main() -> None:
    exactly_once = os.environ["BENCH_GUARANTEE"] == "exactly_once"
    app = Application(
        broker_address=os.environ["BENCH_BROKER"],
        consumer_group=os.environ["BENCH_ID"],
        auto_offset_reset="earliest",
        commit_interval=int(os.environ["BENCH_COMMIT_MS"]) / 1000,
        state_dir=os.environ["BENCH_DATA"],
        processing_guarantee="exactly-once" if exactly_once else "at-least-once",
        loglevel="WARNING",
    )
    source = app.topic(os.environ["BENCH_INPUT"], value_deserializer="json")
    output = app.topic(os.environ["BENCH_OUTPUT"], value_serializer="json")
    (ads if os.environ["BENCH_WORKLOAD"] == "yahoo" else likes)(app, source, output)
    app.run()


if __name__ == "__main__":
    main()
