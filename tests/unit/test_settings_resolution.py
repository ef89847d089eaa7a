from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from tidegate.errors import SettingsError
from tidegate.settings import Settings, variable
from tidegate.settings_resolution import resolve


def test_a_flag_wins_over_the_environment_over_the_app_over_the_default() -> None:
    environment = {"TIDEGATE_DATA": "/environment", "TIDEGATE_PARTITIONS": "7"}
    app = {"data": Path("/app"), "partitions": 5, "commit_interval": 1}

    resolved = resolve(app, {"data": "/flag", "partitions": None}, environment)

    assert (resolved.settings.data, resolved.sources["data"]) == (Path("/flag"), "flag")
    assert (resolved.settings.partitions, resolved.sources["partitions"]) == (7, "environment")
    assert (resolved.settings.commit_interval, resolved.sources["commit_interval"]) == (1.0, "app")
    assert (resolved.settings.store, resolved.sources["store"]) == ("rocksdb", "default")


def test_an_empty_variable_is_ignored() -> None:
    assert resolve({}, {}, {"TIDEGATE_DATA": ""}).sources["data"] == "default"


@pytest.mark.parametrize(
    ("name", "advice"),
    [
        ("TIDEGATE_COMIT_INTERVAL", "did you mean TIDEGATE_COMMIT_INTERVAL?"),
        ("TIDEGATE_PARTITION", "did you mean TIDEGATE_PARTITIONS?"),
        ("TIDEGATE_CHECKPOINTS_INTERVAL", "did you mean TIDEGATE_CHECKPOINT_INTERVAL?"),
        ("TIDEGATE_API_PORT", "is not a setting"),
        ("TIDEGATE_WINTER", "'tidegate config' lists all settings"),
    ],
)
def test_an_unknown_variable_is_reported(name: str, advice: str) -> None:
    environment = {name: "1", "TIDEGATE_DATA": "/environment", "COMMIT_INTERVAL": "1"}

    (sentence,) = resolve({}, {}, environment).ignored

    assert f"variable {name} is not a setting" in sentence
    assert advice in sentence


def test_variables_of_other_programs_are_not_reported() -> None:
    """Whatever the tree mentions is a setting, or read elsewhere; but for the misspelt ones of tests."""
    root = Path(__file__).parents[2]
    places = [root / place for place in ("framework", "app", "api", "services", "spark", "docker", "examples", "tests")]
    files = [
        path
        for place in places
        for path in place.rglob("*")
        if path.is_file() and path.suffix != ".pyc" and path.name != Path(__file__).name
    ]
    found = {
        name for path in files for name in re.findall(r"\bTIDEGATE_[A-Z_]*[A-Z]\b", path.read_text("utf-8", "ignore"))
    }

    found -= {"TIDEGATE_COMIT_INTERVAL"}

    assert {"TIDEGATE_APP", "TIDEGATE_FAULTS", "TIDEGATE_BROKER", "TIDEGATE_SEED", "TIDEGATE_TEST_BROKER"} <= found
    assert resolve({}, {}, dict.fromkeys(found, "")).ignored == ()
    others = found - {variable(name) for name in Settings.__dataclass_fields__}
    assert resolve({}, {}, dict.fromkeys(others, "1")).ignored == ()


def test_service_variables_of_kubernetes_are_not_settings() -> None:
    told = {
        "TIDEGATE_PORT": "tcp://10.0.0.7:8000",
        "TIDEGATE_PORT_8000_TCP": "tcp://10.0.0.7:8000",
        "TIDEGATE_PORT_8000_TCP_ADDR": "10.0.0.7",
        "TIDEGATE_PORT_8000_TCP_PORT": "8000",
        "TIDEGATE_PORT_8000_TCP_PROTO": "tcp",
        "TIDEGATE_SERVICE_HOST": "10.0.0.7",
        "TIDEGATE_SERVICE_PORT": "8000",
        "TIDEGATE_SERVICE_PORT_HTTP": "8000",
        "TIDEGATE_WORKERS_SERVICE_HOST": "10.0.0.8",
        "TIDEGATE_WORKERS_PORT": "tcp://10.0.0.8:8000",
    }

    assert resolve({}, {}, told).ignored == ()


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
