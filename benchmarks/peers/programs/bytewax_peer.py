"""The workloads with Bytewax: stateful operators, recovery on, outputs at least once."""

from __future__ import annotations

import json
import os
import signal
import sys
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import bytewax.operators as op
import orjson
from bytewax.connectors.kafka import KafkaSinkMessage, KafkaSource
from bytewax.connectors.kafka import operators as kop
from bytewax.dataflow import Dataflow
from bytewax.operators import StatefulLogic
from bytewax.recovery import RecoveryConfig, init_db_dir
from bytewax.run import cli_main

WINDOW, GRACE = int(os.environ["BENCH_WINDOW_MS"]), int(os.environ["BENCH_GRACE_MS"])
BROKERS, OUTPUT = [os.environ["BENCH_BROKER"]], os.environ["BENCH_OUTPUT"]


def count_like(n: int | None, who: str) -> tuple[int, int]:
    n = (n or 0) + 1
    return n, n


def likes(flow: Dataflow, source: Any) -> Any:
    keyed = op.map("parse", source, lambda message: (orjson.loads(message.value)["liked"], None))
    counts = op.stateful_map("count", keyed, count_like)
    even = op.filter("every second", counts, lambda item: item[1] % 2 == 0)
    return op.map(
        "encode", even, lambda item: KafkaSinkMessage(item[0].encode(), orjson.dumps({"who": item[0], "n": item[1]}))
    )


@dataclass
class Windows(StatefulLogic):  # type: ignore[misc]
    """The windows of a campaign: a count each; every second those that changed, and the last ones, go out."""

    counts: dict[int, int] = field(default_factory=dict)
    changed: set[int] = field(default_factory=set)
    time: int = 0
    due: datetime | None = None

    def on_item(self, value: int) -> tuple[list[Any], bool]:
        window = value - value % WINDOW
        if window + WINDOW + GRACE <= self.time:
            return [], StatefulLogic.RETAIN
        self.counts[window] = self.counts.get(window, 0) + 1
        self.changed.add(window)
        self.due = self.due or datetime.now(UTC) + timedelta(seconds=1)
        if value <= self.time:
            return [], StatefulLogic.RETAIN
        self.time = value
        over = [item for item in self.counts if item + WINDOW + GRACE <= value]
        self.changed.difference_update(over)
        return [(item, self.counts.pop(item), True) for item in over], StatefulLogic.RETAIN

    def on_notify(self) -> tuple[list[Any], bool]:
        emitted = [(item, self.counts[item], False) for item in sorted(self.changed)]
        self.changed.clear()
        self.due = None
        return emitted, StatefulLogic.RETAIN

    def notify_at(self) -> datetime | None:
        return self.due

    def snapshot(self) -> Windows:
        return Windows(dict(self.counts), set(self.changed), self.time, self.due)


def ads(flow: Dataflow, source: Any) -> Any:
    campaigns = json.loads(Path(os.environ["BENCH_CAMPAIGNS"]).read_text())
    parsed = op.map("parse", source, lambda message: orjson.loads(message.value))
    views = op.filter("views", parsed, lambda ad: ad["event_type"] == "view")
    keyed = op.map("join", views, lambda ad: (campaigns[ad["ad_id"]], ad["event_time"]))
    counts = op.stateful("count", keyed, lambda state: state or Windows())
    return op.map("encode", counts, encode)


def encode(item: Any) -> Any:
    campaign, (window, count, last) = item
    value = {"campaign": campaign, "window": window, "count": count, "final": last}
    return KafkaSinkMessage(campaign.encode(), orjson.dumps(value))


def main() -> None:
    recovery = Path(os.environ["BENCH_DATA"]) / "recovery"
    recovery.mkdir()
    init_db_dir(recovery, 1)
    flow = Dataflow("bench")
    source = op.input("in", flow, KafkaSource(BROKERS, [os.environ["BENCH_INPUT"]], tail=True, batch_size=1000))
    output = (ads if os.environ["BENCH_WORKLOAD"] == "yahoo" else likes)(flow, source)
    kop.output("out", output, brokers=BROKERS, topic=OUTPUT, add_config={"partitioner": "murmur2_random"})
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    interval = timedelta(milliseconds=int(os.environ["BENCH_COMMIT_MS"]))
    cli_main(flow, epoch_interval=interval, recovery_config=RecoveryConfig(str(recovery)))


if __name__ == "__main__":
    main()
