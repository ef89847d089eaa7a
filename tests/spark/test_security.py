"""Spark's own client, with Tidegate's settings for TLS and logins, against a broker that asks for them."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from tests.secure import PASSWORD, USER, Secure, started
from tests.spark.support import ran
from tidegate import App, EventTime
from tidegate_spark import Table, ToTopic, job, read_topic, run_job, source
from tidegate_spark.errors import JobFailedError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class Note(msgspec.Struct):
    id: int


class Notes:
    def __init__(self, **options: str) -> None:
        """options: for Spark's source of the notes."""
        self.id = f"n{uuid.uuid4().hex[:8]}"
        self.app = App(self.id, partitions=1, time=EventTime())
        self.notes = self.app.topic(f"{self.id}-notes", value_type=Note)
        self.copies = self.app.topic(f"{self.id}-copies", value_type=Note)

        @job(inputs=source(self.notes, **options), outputs=[Table("notes", date=None), ToTopic(self.copies)])
        def copy(notes: DataFrame) -> tuple[DataFrame, DataFrame]:
            return notes.select("value.*"), notes.select("value.*")

        self.copy = copy


@pytest.fixture(scope="module")
def secure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secure]:
    with started(tmp_path_factory.mktemp("certificates"), tmp_path_factory.mktemp("secure")) as made:
        yield made


def login(mechanism: str, password: str = PASSWORD) -> dict[str, str]:
    return {"kafka_sasl_mechanism": mechanism, "kafka_sasl_username": USER, "kafka_sasl_password": password}


def client(secure: Secure, key: str, password: str = "") -> dict[str, str]:
    names = {"kafka_tls_cert": "client.pem", "kafka_tls_key": key}
    found = {name: str(secure.certificates / file) for name, file in names.items()}
    return {**found, "kafka_tls_key_password": password}


def flags(secure: Secure, directory: Path, listener: str, **settings: Any) -> dict[str, Any]:
    tls = {"kafka_tls": "on", "kafka_tls_ca": str(secure.certificates / "ca.pem")}
    return {
        "data": directory,
        "broker": secure.broker.url_of(listener),
        **(tls if listener != "LOGIN" else {}),
        **settings,
    }


@pytest.mark.parametrize(
    "kind",
    [
        pytest.param("tls", marks=pytest.mark.slow),  # as "both" has it
        pytest.param("certificate", marks=pytest.mark.slow),  # as "locked" has it, with a password
        "locked",
        "login",
        "both",
    ],
)
def test_topics_are_read_and_written_over_a_secured_connection(
    spark: SparkSession, secure: Secure, tmp_path: Path, kind: str
) -> None:
    settings = {
        "tls": lambda: flags(secure, tmp_path, "TLS"),
        "certificate": lambda: flags(secure, tmp_path, "MUTUAL", **client(secure, "client.key")),
        "locked": lambda: flags(secure, tmp_path, "MUTUAL", **client(secure, "client.locked", "open-sesame")),
        "login": lambda: flags(secure, tmp_path, "LOGIN", **login("PLAIN")),
        "both": lambda: flags(secure, tmp_path, "BOTH", **login("SCRAM-SHA-512")),
    }[kind]()
    notes = Notes()
    ran(notes.app, settings, (notes.notes, [Note(id=n) for n in range(5)]))

    run_job(spark, notes.app, notes.copy, once=True, flags=settings)

    rows = read_topic(spark, notes.app, notes.copies.name, flags=settings).collect()
    assert sorted(row.value.id for row in rows) == list(range(5))


def test_a_wrong_password_is_refused_and_not_shown(
    spark: SparkSession, secure: Secure, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    notes = Notes(**{"fetchOffset.numRetries": "1"})  # or each of its queries tries again, which takes seconds
    ran(notes.app, flags(secure, tmp_path, "LOGIN", **login("PLAIN")), (notes.notes, [Note(id=1)]))

    wrong = flags(secure, tmp_path, "LOGIN", **login("PLAIN", "looking-glass"))
    with pytest.raises(JobFailedError, match="Authentication") as raised:
        run_job(spark, notes.app, notes.copy, once=True, flags=wrong)

    told = capfd.readouterr()
    assert "looking-glass" not in f"{raised.value} {raised.value.__cause__} {told.out} {told.err}"
