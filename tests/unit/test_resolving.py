from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tidegate.errors import SettingsError
from tidegate.resolving import resolve
from tidegate.settings import variable


def test_a_flag_wins_over_the_environment_over_the_app_over_the_default() -> None:
    environment = {"TIDEGATE_DATA": "/environment", "TIDEGATE_PARTITIONS": "7"}
    app = {"data": Path("/app"), "partitions": 5, "commit_interval": 1}

    resolved = resolve(app, {"data": "/flag", "partitions": None}, environment)

    assert (resolved.settings.data, resolved.sources["data"]) == (Path("/flag"), "flag")
    assert (resolved.settings.partitions, resolved.sources["partitions"]) == (7, "environment")
    assert (resolved.settings.commit_interval, resolved.sources["commit_interval"]) == (1.0, "app")
    assert (resolved.settings.store, resolved.sources["store"]) == ("rocksdb", "default")


def test_an_empty_variable_says_nothing() -> None:
    assert resolve({}, {}, {"TIDEGATE_DATA": ""}).sources["data"] == "default"


def test_each_setting_has_a_variable() -> None:
    assert variable("commit_interval") == "TIDEGATE_COMMIT_INTERVAL"


@pytest.mark.parametrize(
    "broker", ["embedded://", "embedded:///var/lib", "kafka://host:9092", "kafka://one:1,two:2", "kafka://[::1]:9092"]
)
def test_a_broker_is_an_embedded_log_or_addresses(broker: str) -> None:
    assert resolve({}, {"broker": broker}, {}).settings.broker == broker


@pytest.mark.parametrize(
    ("app", "flags", "environment", "message"),
    [
        ({"datta": "x"}, {}, {}, "there is no setting 'datta'"),
        ({}, {"partitions": "many"}, {}, "the flag --partitions must be a whole number, not 'many'"),
        ({}, {}, {"TIDEGATE_COMMIT_INTERVAL": "soon"}, "the environment variable TIDEGATE_COMMIT_INTERVAL must be a"),
        ({"partitions": 1.5}, {}, {}, r"App\(..., partitions=...\) must be a whole number"),
        ({"partitions": True}, {}, {}, "must be a whole number"),
        ({}, {"partitions": "0"}, {}, "must be at least 1"),
        ({}, {"commit_interval": "0"}, {}, "must be more than 0"),
        ({}, {"commit_interval": "nan"}, {}, "must be more than 0"),
        ({}, {"store": "disk"}, {}, "must be one of rocksdb, memory"),
        ({}, {"log_level": "loud"}, {}, "must be one of debug, info"),
        ({}, {"broker": "kafka://host"}, {}, "must be embedded://"),
        ({}, {"broker": "embedded"}, {}, "must be embedded://"),
        ({}, {"broker": "kafka://one:1,two"}, {}, "must be embedded://"),
        ({}, {"broker": "kafka://user:secret@host:9092"}, {}, "kafka://HOST:PORT"),
        ({}, {"kafka_tls": "yes"}, {}, "must be one of off, on"),
        ({}, {}, {"TIDEGATE_KAFKA_SASL_MECHANISM": "GSSAPI"}, "must be one of PLAIN, SCRAM-SHA-256, SCRAM-SHA-512"),
        ({}, {"kafka_max_request_bytes": "10"}, {}, "must be at least 10000"),
        ({}, {"metrics": "9464"}, {}, "must be HOST:PORT"),
        ({}, {"metrics": "host:99999"}, {}, "must be HOST:PORT"),
    ],
)
def test_an_impossible_value_is_refused_with_where_it_came_from(
    app: dict[str, Any], flags: dict[str, Any], environment: dict[str, str], message: str
) -> None:
    with pytest.raises(SettingsError, match=message):
        resolve(app, flags, environment)
