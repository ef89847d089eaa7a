"""Everything that can be set, with its documentation and its limits. See `resolving` for which value holds.

Each setting's environment variable is TIDEGATE_ and its name in capitals.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Literal

__all__ = ("ApiSettings", "KafkaSettings", "Settings", "setting_names", "variable")


def variable(name: str) -> str:
    """The environment variable of a setting."""
    return f"TIDEGATE_{name.upper()}"


def _setting(
    default: Any,
    description: str,
    *,
    section: str,
    brief: str = "",
    secret: bool = False,
    switch: bool = False,
    least: float | None = None,
    above: float | None = None,
) -> Any:
    """`brief`: for where all are listed, a line for each; none: how the description begins. `switch`: its flag takes
    no value, and means `on`. `least`, `above`: a value that is not so is refused."""
    metadata = {
        "description": description,
        "brief": brief or re.split(r"[.;:](?=\s|$)", description.replace("`", ""))[0],
        "section": section,
        "secret": secret,
        "switch": switch,
        "least": least,
        "above": above,
    }
    return field(default=default, metadata=metadata)


@dataclass(frozen=True, kw_only=True)
class KafkaSettings:
    """How a Kafka broker is reached and used. The embedded log needs none of it."""

    kafka_tls: Literal["off", "on"] = _setting(
        "off",
        "`on`: connections to the brokers are encrypted, and the brokers' certificates checked.",
        brief="on: encrypt, and check the brokers' certificates",
        section="kafka",
    )
    kafka_tls_ca: str = _setting(
        "",
        "A PEM file with the authorities that may sign the brokers' certificates; none: those of the system.",
        brief="PEM file: who may sign the brokers' certificates",
        section="kafka",
    )
    kafka_tls_cert: str = _setting(
        "",
        "A PEM file with this client's certificate, if the brokers ask for one.",
        brief="PEM file: this client's certificate",
        section="kafka",
    )
    kafka_tls_key: str = _setting(
        "",
        "A PEM file with the key of that certificate.",
        brief="PEM file: the key of that certificate",
        section="kafka",
    )
    kafka_tls_key_password: str = _setting("", "The password of that key, if it has one.", section="kafka", secret=True)
    kafka_sasl_mechanism: Literal["", "PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"] = _setting(
        "",
        "How to log in to the brokers: `PLAIN`, `SCRAM-SHA-256` or `SCRAM-SHA-512`; none: no login.",
        brief="PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512",
        section="kafka",
    )
    kafka_sasl_username: str = _setting("", "Who logs in.", section="kafka")
    kafka_sasl_password: str = _setting("", "The password.", section="kafka", secret=True)
    kafka_client_id: str = _setting(
        "tidegate", "How connections introduce themselves; it shows in the brokers' logs and quotas.", section="kafka"
    )
    kafka_compression: Literal["none", "gzip", "snappy", "lz4", "zstd"] = _setting(
        "zstd",
        "How batches are compressed: `none`, `gzip`, `snappy`, `lz4` or `zstd`. Any is read, whatever is written. "
        "Measured on small JSON records: `zstd` to a fifth at 245 MB/s, `snappy` to a third at 585, `lz4` at 38.",
        brief="none, gzip, snappy, lz4 or zstd",
        section="kafka",
    )
    kafka_replication: int = _setting(
        -1,
        "How many brokers keep a copy of each topic that is created; -1: what the brokers say.",
        brief="Copies of each topic that is created; -1: as the brokers say",
        section="kafka",
        least=-1,
    )
    kafka_max_request_bytes: int = _setting(
        1 << 20,
        "The largest batch that is sent, and so the largest record. Public topics must allow it (max.message.bytes).",
        brief="The largest batch, and so the largest record",
        section="kafka",
        least=10_000,
    )
    kafka_connect_timeout: float = _setting(
        15.0,
        "How long a start waits for a broker that does not answer, in seconds.",
        brief="Seconds that a start waits for a broker",
        section="kafka",
        above=0,
    )
    kafka_request_timeout: float = _setting(
        30.0,
        "How long to wait for the answer to one request before it is sent again, in seconds.",
        brief="Seconds before a request is sent again",
        section="kafka",
        above=0,
    )
    kafka_transaction_timeout: float = _setting(
        60.0,
        "How long a commit waits for brokers that do not answer, in seconds; then the brokers abort it.",
        brief="Seconds that a commit waits for the brokers",
        section="kafka",
        least=1,
    )
    kafka_session_timeout: float = _setting(
        10.0,
        "After this many seconds without a sign of a worker, its tasks go to others.",
        brief="Seconds without a sign before tasks go to others",
        section="kafka",
        least=1,
    )
    kafka_instance: str = _setting(
        "",
        "A name for this worker that lasts over restarts, such as a pod's: its tasks then wait for it for the session "
        "timeout, also when it stops in order. Each worker needs another one, which its processes number; none: tasks "
        "move at once.",
        brief="A name for this worker that lasts over restarts",
        section="kafka",
    )


@dataclass(frozen=True, kw_only=True)
class ApiSettings:
    """What a worker answers over HTTP, to whom, and how much at a time."""

    api: str = _setting(
        "127.0.0.1:8000",
        "HOST:PORT of the HTTP API and the dashboard; `off`: there is none. If nothing is said and the port is taken, "
        "the next free one is used. Another host than this machine's loopback needs tokens, or `api_insecure`.",
        brief="Address of the HTTP API and dashboard; off: none",
        section="api",
    )
    advertise: str = _setting(
        "",
        "HOST:PORT under which other workers reach this one's API; none: `api`, or this machine's name if that says "
        "all interfaces. Of several processes each takes the next port.",
        brief="Where other workers reach this one's API",
        section="api",
    )
    api_insecure: Literal["off", "on"] = _setting(
        "off",
        "`on`: serve other machines without tokens. Whoever reaches the port may read and send.",
        brief="on: serve other machines without tokens",
        section="api",
    )
    api_tokens: str = _setting(
        "",
        "Who may do what: `TOKEN SCOPE SCOPE`, and more of these after a semicolon or on the next line. Scopes are "
        "`state:read:SERVICE`, `actor:send:SERVICE`, `topic:send:TOPIC` (or `*` for all of a kind) and `ops`.",
        section="api",
        secret=True,
    )
    api_tokens_file: str = _setting(
        "",
        "A file with tokens and their scopes, one TOKEN SCOPE SCOPE... a line; `#` begins a remark.",
        brief="A file of tokens and their scopes",
        section="api",
    )
    api_jwt_key: str = _setting(
        "",
        "The secret (HS256, 32 bytes or more) or PEM public key (RS256, ES256, EdDSA; `pip install 'tidegate[jwt]'`) "
        "that JSON web tokens are checked with. They need `exp`, and their scopes in `scope` or `scopes`.",
        section="api",
        secret=True,
    )
    api_jwt_key_file: str = _setting(
        "", "A file with the key that web tokens are signed with: a secret, or a public key in PEM.", section="api"
    )
    api_jwt_audience: str = _setting(
        "", "What a web token's `aud` must contain; none: it is not looked at.", section="api"
    )
    api_jwt_issuer: str = _setting("", "What a web token's `iss` must be; none: it is not looked at.", section="api")
    api_peer_token: str = _setting(
        "",
        "What workers show each other when they forward requests; the same for all of an app. None: they pass on the "
        "client's own token.",
        section="api",
        secret=True,
    )
    api_tls_cert: str = _setting(
        "",
        "A PEM file with the API's certificate: then it speaks HTTPS only.",
        brief="PEM file: the API's certificate",
        section="api",
    )
    api_tls_key: str = _setting(
        "", "A PEM file with the key of that certificate.", brief="PEM file: the key of that certificate", section="api"
    )
    api_tls_ca: str = _setting(
        "",
        "A PEM file with the authorities that sign the workers' certificates; none: those of the system.",
        brief="PEM file: who signs the workers' certificates",
        section="api",
    )
    api_cors: str = _setting(
        "",
        "Origins whose pages may use the API from browsers, with commas between them; none: no other.",
        brief="Origins whose pages may use the API, with commas between them",
        section="api",
    )
    api_page: int = _setting(1000, "The largest page, and the largest batch.", section="api", least=1)
    api_max_bytes: int = _setting(
        4 << 20,
        "The largest body of a request, and of an answer, in bytes.",
        brief="The largest body of a request, and of an answer",
        section="api",
        least=10_000,
    )
    api_timeout: float = _setting(
        10.0,
        "How long a request may take, in seconds; also how long one waits for `min_position`.",
        brief="Seconds that a request may take",
        section="api",
        above=0,
    )
    api_concurrency: int = _setting(
        128, "How many requests are answered at the same time; more get 429.", section="api", least=1
    )
    api_scans: int = _setting(8, "How many of these may be scans and batches.", section="api", least=1)
    api_watchers: int = _setting(
        200, "How many streams of changes may be open at the same time.", section="api", least=0
    )


@dataclass(frozen=True, kw_only=True)
class Settings(ApiSettings, KafkaSettings):
    """How an app runs. None of it changes what its services compute."""

    broker: str = _setting(
        "embedded://",
        "Where the log is: `embedded://` for the durable log inside the worker, under `data`, or "
        "`kafka://HOST:PORT[,HOST:PORT]`.",
        brief="embedded:// or kafka://HOST:PORT[,HOST:PORT]",
        section="log",
    )
    data: Path = _setting(  # noqa: RUF009  a path cannot change in place
        Path(".tidegate"),
        "The directory for the embedded log and the local stores; each app has its own below it.",
        brief="Where the embedded log and the local stores are",
        section="log",
    )
    partitions: int = _setting(4, "How many partitions a topic gets that does not say.", section="log", least=1)
    retention_hours: float = _setting(
        168.0,
        "How long topics keep records, unless they say otherwise; 0 keeps them for ever.",
        brief="Hours that topics keep records; 0: for ever",
        section="log",
        least=0,
    )
    store: Literal["rocksdb", "memory"] = _setting(
        "rocksdb",
        "Where tasks keep state: `rocksdb` on disk, or `memory`, rebuilt from the changelog at every start.",
        section="state",
    )
    cache_entries: int = _setting(
        200_000,
        "How many decoded values a worker keeps in memory, over all its tasks, besides those being committed.",
        brief="Decoded values that are kept in memory, over all tasks",
        section="state",
        least=1000,
    )
    store_memory_mb: int = _setting(
        192,
        "Memory for RocksDB's caches and write buffers, over all stores of a worker, in MiB.",
        brief="MiB for RocksDB's caches and buffers, over all stores",
        section="state",
        least=1,
    )
    flush_seconds: float = _setting(
        10.0,
        "How often stores are written to disk, which bounds what a start after a crash must replay.",
        brief="Seconds between writes of the stores to disk",
        section="state",
        above=0,
    )
    allow_dropped: Literal["off", "on"] = _setting(
        "off",
        "`on`: remove what states hold that the code no longer declares. Otherwise a worker does not start over such.",
        brief="Remove what states hold that the code no longer declares",
        section="state",
        switch=True,
    )
    commit_interval: float = _setting(
        0.2,
        "Seconds between the commits of a task: how long results wait before others see them.",
        section="engine",
        above=0,
    )
    commit_changes: int = _setting(
        25_000,
        "A task also commits as soon as it holds this many changes or outputs.",
        brief="Changes or outputs after which a task commits at once",
        section="engine",
        least=1,
    )
    slice_ms: float = _setting(
        2.0,
        "How long handlers run before the event loop gets its turn, in ms.",
        brief="Milliseconds of handlers before the loop has its turn",
        section="engine",
        above=0,
    )
    buffer_records: int = _setting(
        8_000,
        "How many records a task reads ahead before it stops reading.",
        brief="Records that a task reads ahead",
        section="engine",
        least=1,
    )
    progress_interval: float = _setting(
        1.0,
        "Seconds between a task's messages about event time to the services that read its output.",
        brief="Seconds between a task's messages about event time",
        section="engine",
        above=0,
    )
    stall_seconds: float = _setting(
        30.0,
        "How long an input may stand still, though the log has more of it, before it is read anew.",
        brief="Seconds before an input that stands still is read anew",
        section="engine",
        above=0,
    )
    checkpoint_interval: float = _setting(
        0.0,
        "Seconds between checkpoints; 0: only when they are asked for.",
        brief="Seconds between checkpoints; 0: only when asked for",
        section="checkpoints",
        least=0,
    )
    checkpoint_storage: str = _setting(
        "",
        "Where checkpoints and savepoints are kept: a path, `file://PATH`, `s3://BUCKET/PATH`, or what else fsspec "
        "knows; each app has its own folder there. Empty: under `data`. Workers on several machines need one that all "
        "of them reach.",
        brief="Where checkpoints and savepoints are kept: a path or a URL",
        section="checkpoints",
    )
    checkpoint_keep: int = _setting(
        3,
        "How many complete checkpoints are kept. Savepoints stay until somebody deletes them.",
        section="checkpoints",
        least=1,
    )
    checkpoint_timeout: float = _setting(
        300.0,
        "After so many seconds a checkpoint that is not complete is given up.",
        brief="Seconds before one that is not complete is given up",
        section="checkpoints",
        above=0,
    )
    processes: int = _setting(
        1,
        "How many processes a worker starts, each with a share of the tasks and with caches of its own. More than one "
        "needs a broker.",
        brief="Processes that share the tasks; more need a broker",
        section="worker",
        least=1,
    )
    drain_seconds: float = _setting(
        5.0,
        "How long a worker that stops waits for handlers that are under way, in seconds.",
        brief="Seconds that a worker that stops waits for handlers",
        section="worker",
        least=0,
    )
    tables: str = _setting(
        "",
        "Where Spark jobs keep tables and their checkpoints, each app its own below it: a directory, or a URL that "
        "Spark can write to; none: beside the app's data.",
        brief="Where Spark jobs keep tables and their checkpoints",
        section="spark",
    )
    spark_master: str = _setting(
        "local[*]",
        "Where Spark jobs run: `local[N]` in the command itself, or a cluster's master URL.",
        brief="local[N], or a cluster's master URL",
        section="spark",
    )
    metrics: str = _setting(
        "",
        "HOST:PORT at which the worker answers with Prometheus metrics; empty: nowhere. Of several processes each "
        "takes the next port.",
        brief="Address of Prometheus metrics",
        section="worker",
    )
    log_level: Literal["debug", "info", "warning", "error"] = _setting(
        "info",
        "How much the worker logs: `debug`, `info`, `warning` or `error`.",
        brief="debug, info, warning or error",
        section="worker",
    )


def setting_names() -> tuple[str, ...]:
    return tuple(item.name for item in fields(Settings))
