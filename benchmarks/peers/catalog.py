"""The catalogue of peers: one row per peer and configuration, and the command that runs it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from benchmarks.peers import setup

__all__ = ("QUICK", "ROWS", "Guarantee", "Row", "choose")

Guarantee = Literal["exactly_once", "at_least_once"]
Command = list[str | Path]

_HERE = Path(__file__).parent

# the same options as in Flink's own scripts for Java 17
_OPENS = tuple(
    f"--add-opens=java.base/{package}=ALL-UNNAMED"
    for package in ("java.lang", "java.net", "java.io", "java.nio", "sun.nio.ch", "java.lang.reflect", "java.text",
                    "java.time", "java.util", "java.util.concurrent", "java.util.concurrent.atomic",
                    "java.util.concurrent.locks")
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Row:
    """A peer in one configuration."""

    name: str
    title: str
    guarantee: Guarantee
    command: Callable[[Row], Command]
    """Installs the peer if needed. SetupError: it cannot be installed."""
    commit_ms: Mapping[str, int] = field(default_factory=dict)
    """The commit interval by workload, if it is not 200 ms."""
    workloads: Sequence[str] = ("w", "yahoo", "latency")
    options: Mapping[str, str] = field(default_factory=dict)
    partitions: int = 4
    """The partitions of the input."""
    output_partitions: int = 4
    fast: bool = False
    """Handles millions of events and is measured several times; other rows are measured once."""
    clock: bool = True
    """Has processing-time timers; otherwise due results are emitted with the next event, and the last ones never."""
    note: str = ""

    def interval(self, workload: str) -> int:
        return self.commit_ms.get(workload, 200)


def _tidegate(row: Row) -> Command:
    """The harness adds the broker, the data directory and the app."""
    return [Path(sys.executable).with_name("tidegate"), "worker", "--processes", row.options.get("processes", "1")]


def _bare(row: Row) -> Command:
    return [sys.executable, "-m", "benchmarks.floors.kafka_loop"]


def _python(peer: str) -> Callable[[Row], Command]:
    return lambda row: [setup.environment(peer), _HERE / "programs" / f"{peer}_peer.py"]


def _java(peer: str, *options: str) -> Callable[[Row], Command]:
    def command(row: Row) -> Command:
        built = setup.build(peer)
        return [
            "java",
            "-Xmx2g",
            "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
            *options,
            "-cp",
            f"{built}/peer.jar:{built}/libs/*",
            "bench.Main",
        ]

    return command


def _pyflink(row: Row) -> Command:
    """The connector's jars are part of the Flink peer."""
    jars = setup.build("flink") / "libs"
    needed = [
        next(jars.glob(f"{name}-*.jar")) for name in ("flink-connector-kafka", "flink-connector-base", "kafka-clients")
    ]
    python = setup.environment("pyflink")
    return [python, _HERE / "programs" / "pyflink_peer.py", *needed]


# where a commit is expensive, the throughput runs commit every second, to the peer's advantage
_SECOND = {"w": 1000, "yahoo": 1000}

ROWS: Sequence[Row] = (
    Row(name="tidegate", title="Tidegate", guarantee="exactly_once", command=_tidegate, fast=True),
    Row(name="tidegate-2p", title="Tidegate, 2 processes", guarantee="exactly_once", command=_tidegate,
        options={"processes": "2"}, workloads=("w",), fast=True),
    Row(name="tidegate-64", title="Tidegate, 64 partitions", guarantee="exactly_once", command=_tidegate,
        partitions=64, workloads=("w",), fast=True),
    Row(name="tidegate-alo", title="Tidegate", guarantee="at_least_once", command=_tidegate,
        workloads=("latency",), fast=True),
    Row(name="bare", title="bare loop", guarantee="exactly_once", command=_bare, workloads=("w",), fast=True,
        note="no recovery, no rebalance, no timers, no errors handled"),
    Row(name="kafka-streams", title="Kafka Streams 4.3 (Java), RocksDB", guarantee="exactly_once",
        command=_java("kafka_streams"), fast=True),
    Row(name="kafka-streams-alo", title="Kafka Streams 4.3 (Java), RocksDB", guarantee="at_least_once",
        command=_java("kafka_streams"), workloads=("latency",), fast=True),
    Row(name="flink-rocksdb", title="Flink 2.2 (Java), RocksDB", guarantee="exactly_once",
        command=_java("flink", *_OPENS), options={"store": "rocksdb"}, commit_ms=_SECOND,
        workloads=("w", "yahoo"), fast=True),
    Row(name="flink-heap", title="Flink 2.2 (Java), heap", guarantee="exactly_once",
        command=_java("flink", *_OPENS), options={"store": "hashmap"}, commit_ms=_SECOND, fast=True),
    Row(name="flink-heap-alo", title="Flink 2.2 (Java), heap", guarantee="at_least_once",
        command=_java("flink", *_OPENS), options={"store": "hashmap"}, workloads=("latency",), fast=True),
    Row(name="pyflink-thread", title="PyFlink 2.2, thread mode, RocksDB", guarantee="exactly_once", command=_pyflink,
        options={"mode": "thread"}, commit_ms=_SECOND, output_partitions=1),
    Row(name="pyflink-process", title="PyFlink 2.2, process mode, RocksDB", guarantee="exactly_once",
        command=_pyflink, options={"mode": "process"}, commit_ms=_SECOND, output_partitions=1, workloads=("w",)),
    Row(name="quix", title="Quix Streams 3.28", guarantee="exactly_once", command=_python("quix"), commit_ms=_SECOND,
        clock=False),
    Row(name="quix-alo", title="Quix Streams 3.28", guarantee="at_least_once", command=_python("quix"),
        commit_ms=_SECOND, workloads=("w", "latency")),
    Row(name="faust-dict", title="Faust 0.15 agent, dict", guarantee="at_least_once", command=_python("faust"),
        options={"state": "dict"}, workloads=("w",), note="its counters are lost when it ends"),
    Row(name="faust-table", title="Faust 0.15 agent, Table", guarantee="at_least_once", command=_python("faust"),
        options={"state": "table"}),
    Row(name="bytewax", title="Bytewax 0.21, recovery on", guarantee="at_least_once", command=_python("bytewax"),
        commit_ms=_SECOND),
)  # fmt: skip

QUICK = ("tidegate", "bare", "kafka-streams", "quix", "faust-table")


def choose(names: str) -> list[Row]:
    """quick, all, or comma-separated names; a name without its suffix selects all rows with this prefix. KeyError:
    unknown."""
    wanted = QUICK if names == "quick" else [row.name for row in ROWS] if names == "all" else names.split(",")
    chosen: list[Row] = []
    for name in wanted:
        found = [row for row in ROWS if row.name == name] or [row for row in ROWS if row.name.startswith(f"{name}-")]
        if not found:
            raise KeyError(name)
        chosen += [row for row in found if row not in chosen]
    return chosen
