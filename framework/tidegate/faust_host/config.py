"""Translates our settings to Faust's: the same brokers, login and kind of topics.

Options of Faust take precedence: `App(..., faust={"broker_session_timeout": 30})`, a configuration object, or
one of Faust's own environment variables. Only the brokers are always ours.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from pathlib import Path
from typing import Any, Final

import faust
from faust.types.settings import Settings as FaustSettings
from faust.utils.urls import urllist

from tidegate.directories import data_directory, on_kafka
from tidegate.errors import DefinitionError
from tidegate.functions.declaration.validation import nearest
from tidegate.settings import Settings

__all__ = ("FAUST_DEFAULTS", "FAUST_OPTIONS", "check_options", "connect_faust", "keep_tables")

FAUST_DEFAULTS: Final[Mapping[str, Any]] = {
    "agent_supervisor": "tidegate.faust_host.supervision.StopOnFailure",
    "Worker": "tidegate.faust_host.worker.Worker",
}
"""Faust's options with another default here."""
FAUST_OPTIONS: Final = (frozenset(FaustSettings.SETTINGS) | {"monitor", "config_source", "loop", "beacon"}) - {"id"}
"""The options that `App(..., faust={...})` accepts."""


def check_options(app: str, options: Iterable[str]) -> None:
    """Refuse unknown options, which Faust would silently ignore."""
    for name in options:
        if name == "broker":
            raise DefinitionError(f"the broker of Faust's clients is Tidegate's: App({app!r}, broker=...)")
        if name not in FAUST_OPTIONS:
            near = nearest(name, FAUST_OPTIONS)
            meant = "" if near is None else f"; did you mean {near!r}?"
            raise DefinitionError(f"App({app!r}, faust=...): Faust has no option {name!r}{meant}")


def connect_faust(conf: Any, settings: Settings, given: Container[str]) -> None:
    """Set the options of Faust's clients. `given`: options that the user has set, which are kept."""
    _set(conf, "broker", urllist(settings.broker))
    _set_unless(given, conf, {"datadir": data_directory(conf.name, settings)})
    if on_kafka(settings):
        _set_unless(given, conf, {**_clients(settings), **_topics(settings), **_login(settings)})


def keep_tables(conf: Any, directory: Path, given: Container[str]) -> None:
    """Create the directories of Faust's tables, below the worker's data directory."""
    _set_unless(given, conf, {"datadir": directory / "faust"})
    for path in (conf.datadir, conf.appdir, conf.tabledir):
        path.mkdir(parents=True, exist_ok=True)


def _clients(settings: Settings) -> Mapping[str, Any]:
    session = settings.kafka_session_timeout
    return {
        "broker_client_id": settings.kafka_client_id,
        "broker_session_timeout": session,
        "broker_heartbeat_interval": min(3.0, session / 5),
        "broker_request_timeout": max(settings.kafka_request_timeout, session),  # Faust requires this
        "consumer_group_instance_id": settings.kafka_instance or None,
        "producer_compression_type": None if settings.kafka_compression == "none" else settings.kafka_compression,
        "producer_max_request_size": settings.kafka_max_request_bytes,
        "producer_request_timeout": settings.kafka_request_timeout,
    }


def _topics(settings: Settings) -> Mapping[str, Any]:
    """For changelogs and agents' own topics, which Faust creates: as many partitions as their input topics have."""
    return {
        "topic_partitions": settings.partitions,
        "topic_replication_factor": settings.kafka_replication,
    }


def _login(settings: Settings) -> Mapping[str, Any]:
    from tidegate.logs.kafka.connection.options import addresses_of, client_options

    options = client_options(addresses_of(settings.broker), settings)
    context = options["ssl_context"]
    if "sasl_mechanism" in options:
        credentials: Any = faust.SASLCredentials(
            username=options["sasl_plain_username"],
            password=options["sasl_plain_password"],
            mechanism=options["sasl_mechanism"],
            ssl_context=context,
        )
    else:
        credentials = None if context is None else faust.SSLCredentials(context)
    return {"broker_credentials": credentials}


def _set_unless(given: Container[str], conf: Any, values: Mapping[str, Any]) -> None:
    for name, value in values.items():
        if name not in given and not _in_environment(conf, name):
            _set(conf, name, value)


def _in_environment(conf: Any, name: str) -> bool:
    variable = conf.SETTINGS[name].env_name
    return variable is not None and conf.getenv(variable) is not None


def _set(conf: Any, name: str, value: Any) -> None:
    """Suppress Faust's warning about settings that were read before: declaring a topic reads some of them."""
    conf.SETTINGS[name].on_set(conf, value)
