"""All settings, with their documentation and limits. `settings_resolution` determines their values.

The environment variable of a setting is TIDEGATE_ followed by its name in capitals.
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
    """`brief`: the text for lists with one line per setting; by default the beginning of the description. `switch`:
    the flag takes no value and means `on`. `least`: the inclusive lower limit. `above`: the exclusive lower limit."""
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
    """Connections to a Kafka broker, and their use. The embedded log uses none of these."""

    kafka_tls: Literal["off", "on"] = _setting(
        "off",
        "`on`: encrypt connections to the brokers, and verify the brokers' certificates.",
        brief="on: encrypt, and verify the brokers' certificates",
        section="kafka",
    )
    kafka_tls_ca: str = _setting(
        "",
        "A PEM file with the certificate authorities of the brokers; none: those of the system.",
        brief="PEM file: the brokers' certificate authorities",
        section="kafka",
    )
    kafka_tls_cert: str = _setting(
        "",
        "A PEM file with this client's certificate, if the brokers require one.",
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
    kafka_sasl_username: str = _setting("", "The user name.", section="kafka")
    kafka_sasl_password: str = _setting("", "The password.", section="kafka", secret=True)
    kafka_client_id: str = _setting(
        "tidegate", "The client id of connections; it appears in the brokers' logs and quotas.", section="kafka"
    )
    kafka_compression: Literal["none", "gzip", "snappy", "lz4", "zstd"] = _setting(
        "zstd",
        "The compression of written batches: `none`, `gzip`, `snappy`, `lz4` or `zstd`. All of them can be read. "
        "Measured on small JSON records: `zstd` to a fifth at 245 MB/s, `snappy` to a third at 585, `lz4` at 38.",
        brief="none, gzip, snappy, lz4 or zstd",
        section="kafka",
    )
    kafka_replication: int = _setting(
        -1,
        "The replication factor of created topics; -1: the brokers' default.",
        brief="Replication factor of created topics; -1: the brokers' default",
        section="kafka",
        least=-1,
    )
    kafka_max_request_bytes: int = _setting(
        1 << 20,
        "The largest batch that is sent, and thus the largest record. Public topics must allow it (max.message.bytes).",
        brief="The largest batch, and thus the largest record",
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
        "How long to wait for the response to a request before it is retried, in seconds.",
        brief="Seconds before a request is retried",
        section="kafka",
        above=0,
    )
    kafka_transaction_timeout: float = _setting(
        60.0,
        "How long a commit waits for brokers that do not respond, in seconds; then the brokers abort it.",
        brief="Seconds that a commit waits for the brokers",
        section="kafka",
        least=1,
    )
    kafka_session_timeout: float = _setting(
        10.0,
        "After this many seconds without a heartbeat of a worker, its tasks are reassigned.",
        brief="Seconds without a heartbeat before tasks are reassigned",
        section="kafka",
        least=1,
    )
    kafka_instance: str = _setting(
        "",
        "A static name of this worker (`group.instance.id`), such as its pod's: during a restart its tasks stay "
        "assigned for the session timeout, even after an orderly stop. Each worker needs a unique name; its processes "
        "append a number. None: tasks are reassigned at once.",
        brief="A static name of this worker that survives restarts",
        section="kafka",
    )


@dataclass(frozen=True, kw_only=True)
class ApiSettings:
    """The HTTP API of a worker: address, access and limits."""

    api: str = _setting(
        "127.0.0.1:8000",
        "HOST:PORT of the HTTP API and the dashboard; `off`: none. If the setting is not given and the port is taken, "
        "the next free port is used. A host other than the loopback interface needs tokens, or `api_insecure`.",
        brief="Address of the HTTP API and dashboard; off: none",
        section="api",
    )
    advertise: str = _setting(
        "",
        "HOST:PORT at which other workers reach this worker's API; none: `api`, or this machine's name if `api` is all "
        "interfaces. Each further process of a worker takes the next port.",
        brief="Address at which other workers reach this API",
        section="api",
    )
    api_insecure: Literal["off", "on"] = _setting(
        "off",
        "`on`: serve other machines without tokens. Every client that reaches the port may read and send.",
        brief="on: serve other machines without tokens",
        section="api",
    )
    api_tokens: str = _setting(
        "",
        "Access tokens and their scopes: `TOKEN SCOPE SCOPE`, separated by semicolons or line breaks. Scopes are "
        "`state:read:SERVICE`, `actor:send:SERVICE`, `topic:send:TOPIC` (or `*` for all of a kind) and `ops`.",
        section="api",
        secret=True,
    )
    api_tokens_file: str = _setting(
        "",
        "A file with access tokens and their scopes, one `TOKEN SCOPE SCOPE...` per line; `#` begins a comment.",
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
        "", "A file with the key that web tokens are verified with: a secret, or a public key in PEM.", section="api"
    )
    api_jwt_audience: str = _setting(
        "", "The audience that a web token's `aud` must contain; none: not checked.", section="api"
    )
    api_jwt_issuer: str = _setting(
        "", "The issuer that a web token's `iss` must name; none: not checked.", section="api"
    )
    api_peer_token: str = _setting(
        "",
        "The token with which workers forward requests to each other; the same for all workers of an app. None: they "
        "forward the client's own token.",
        section="api",
        secret=True,
    )
    api_tls_cert: str = _setting(
        "",
        "A PEM file with the API's certificate; the API is then served over HTTPS only.",
        brief="PEM file: the API's certificate",
        section="api",
    )
    api_tls_key: str = _setting(
        "", "A PEM file with the key of that certificate.", brief="PEM file: the key of that certificate", section="api"
    )
    api_tls_ca: str = _setting(
        "",
        "A PEM file with the certificate authorities of the workers; none: those of the system.",
        brief="PEM file: the workers' certificate authorities",
        section="api",
    )
    api_cors: str = _setting(
        "",
        "Comma-separated origins whose pages may use the API from browsers (CORS); none: no other origin.",
        brief="Comma-separated origins whose pages may use the API",
        section="api",
    )
    api_page: int = _setting(1000, "The maximum size of a page, and of a batch.", section="api", least=1)
    api_max_bytes: int = _setting(
        4 << 20,
        "The maximum body of a request, and of a response, in bytes.",
        brief="The maximum body of a request, and of a response",
        section="api",
        least=10_000,
    )
    api_timeout: float = _setting(
        10.0,
        "The timeout of a request, in seconds, including the wait for `min_position`.",
        brief="Timeout of a request, in seconds",
        section="api",
        above=0,
    )
    api_concurrency: int = _setting(
        128, "How many requests are processed concurrently; further ones get 429.", section="api", least=1
    )
    api_scans: int = _setting(8, "How many of them may be scans and batches.", section="api", least=1)
    api_watchers: int = _setting(200, "How many change streams may be open concurrently.", section="api", least=0)


@dataclass(frozen=True, kw_only=True)
class Settings(ApiSettings, KafkaSettings):
    """All settings of an app. None of them changes what its services compute."""

    broker: str = _setting(
        "embedded://",
        "Where the log is: `embedded://` for the durable log inside the worker, under `data`, or "
        "`kafka://HOST:PORT[,HOST:PORT]`.",
        brief="embedded:// or kafka://HOST:PORT[,HOST:PORT]",
        section="log",
    )
    data: Path = _setting(  # noqa: RUF009  a path cannot change in place
        Path(".tidegate"),
        "The directory of the embedded log and the local stores; each app has its own subdirectory.",
        brief="Directory of the embedded log and the local stores",
        section="log",
    )
    partitions: int = _setting(4, "The number of partitions of topics that do not declare it.", section="log", least=1)
    retention_hours: float = _setting(
        168.0,
        "How long topics that declare no retention keep records, in hours; 0: forever.",
        brief="Hours that topics keep records; 0: forever",
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
        "How many decoded values a worker caches over all its tasks, besides those being committed.",
        brief="Decoded values that are cached, over all tasks",
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
        "Seconds between flushes of the stores to disk, which bounds what recovery from a crash must replay.",
        brief="Seconds between flushes of the stores to disk",
        section="state",
        above=0,
    )
    allow_dropped: Literal["off", "on"] = _setting(
        "off",
        "`on`: delete stored state that the code no longer declares. Otherwise a worker refuses to start with it.",
        brief="Delete stored state that the code no longer declares",
        section="state",
        switch=True,
    )
    commit_interval: float = _setting(
        0.2,
        "Seconds between the commits of a task: the delay until results are visible to others.",
        section="engine",
        above=0,
    )
    commit_changes: int = _setting(
        25_000,
        "A task also commits as soon as it has this many uncommitted changes or outputs.",
        brief="Changes or outputs after which a task commits at once",
        section="engine",
        least=1,
    )
    slice_ms: float = _setting(
        2.0,
        "How long handlers run before they yield to the event loop, in ms.",
        brief="Milliseconds that handlers run before they yield",
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
        "Seconds between the watermarks that a task publishes to the services that read its output.",
        brief="Seconds between a task's published watermarks",
        section="engine",
        above=0,
    )
    stall_seconds: float = _setting(
        30.0,
        "How long an input may make no progress while the log has more records, before its reader is restarted.",
        brief="Seconds without progress before an input's reader is restarted",
        section="engine",
        above=0,
    )
    checkpoint_interval: float = _setting(
        0.0,
        "Seconds between checkpoints; 0: only on request.",
        brief="Seconds between checkpoints; 0: only on request",
        section="checkpoints",
        least=0,
    )
    checkpoint_storage: str = _setting(
        "",
        "Where checkpoints and savepoints are stored: a path, `file://PATH`, `s3://BUCKET/PATH`, or any other URL that "
        "fsspec supports; each app has its own folder there. Empty: under `data`. Workers on several machines need a "
        "shared one.",
        brief="Where checkpoints and savepoints are stored: a path or a URL",
        section="checkpoints",
    )
    checkpoint_keep: int = _setting(
        3,
        "How many complete checkpoints are kept. Savepoints are kept until they are deleted by a command.",
        section="checkpoints",
        least=1,
    )
    checkpoint_timeout: float = _setting(
        300.0,
        "Seconds after which an incomplete checkpoint is aborted.",
        brief="Seconds before an incomplete checkpoint is aborted",
        section="checkpoints",
        above=0,
    )
    processes: int = _setting(
        1,
        "The number of processes of a worker, each with a share of the tasks and its own caches. More than one needs a "
        "broker.",
        brief="Processes that share the tasks; more than one needs a broker",
        section="worker",
        least=1,
    )
    drain_seconds: float = _setting(
        5.0,
        "How long a stopping worker waits for running handlers, in seconds.",
        brief="Seconds that a stopping worker waits for handlers",
        section="worker",
        least=0,
    )
    tables: str = _setting(
        "",
        "Where Spark jobs store tables and their checkpoints: a directory, or a URL that Spark can write to; each app "
        "has its own folder there. None: beside the app's data.",
        brief="Where Spark jobs store tables and their checkpoints",
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
        "HOST:PORT at which the worker serves Prometheus metrics; empty: not served. Each further process of a worker "
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
