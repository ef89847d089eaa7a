"""Faust's clients go where ours go, and whatever was said to Faust itself holds."""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Any

import faust
import pytest
from faust.types.auth import AuthProtocol, SASLMechanism

from tidegate import App
from tidegate.errors import DefinitionError
from tidegate.faust_host.config import keep_tables

BROKER = "kafka://one:9092,two:9093"


def connected(**options: Any) -> Any:
    app = App("app", **{"broker": BROKER, **options})
    app.faust.connect_faust()
    return app.faust.conf


def test_options_go_to_faust_and_unknown_options_are_refused() -> None:
    conf = App("app", faust={"stream_buffer_maxsize": 7, "store": "aerospike://"}).faust.conf
    assert (conf.stream_buffer_maxsize, conf.store.scheme) == (7, "aerospike")
    with pytest.raises(DefinitionError, match="Faust has no option 'topic_partition'; did you mean 'topic_partitions'"):
        App("app", faust={"topic_partition": 4})
    with pytest.raises(DefinitionError, match=r"is Tidegate's: App\('app', broker=\.\.\.\)"):
        App("app", faust={"broker": "kafka://elsewhere:9092"})


def test_brokers_are_those_of_our_settings() -> None:
    conf = connected()
    for urls in (conf.broker, conf.broker_consumer, conf.broker_producer):
        assert [str(url) for url in urls] == ["kafka://one:9092", "kafka://two:9093"]
    assert conf.broker_credentials is None


def test_flags_win_over_the_environment_and_that_over_the_app(monkeypatch: pytest.MonkeyPatch) -> None:
    app = App("app", broker=BROKER)

    @app.agent()
    async def agent(stream: Any) -> None: ...

    monkeypatch.setenv("BROKER_URL", "kafka://fausts-own:9092")
    app.faust.connect_faust()
    assert str(app.faust.conf.broker[0]) == "kafka://one:9092"
    monkeypatch.setenv("TIDEGATE_BROKER", "kafka://environment:9092")
    app.faust.connect_faust()
    assert str(app.faust.conf.broker[0]) == "kafka://environment:9092"
    app.host.flags = {"broker": "kafka://flag:9092"}
    app.faust.connect_faust()
    assert str(app.faust.conf.broker[0]) == "kafka://flag:9092"
    assert [str(url) for url in app.faust.transport.url] == ["kafka://flag:9092"]


def test_topics_of_fausts_own_are_like_ours() -> None:
    conf = connected(partitions=7, kafka_replication=3)
    assert (conf.topic_partitions, conf.topic_replication_factor) == (7, 3)
    assert connected().topic_replication_factor == -1


def test_clients_wait_and_write_as_ours_do() -> None:
    conf = connected(
        kafka_session_timeout=45.0, kafka_request_timeout=20.0, kafka_instance="pod-1", kafka_client_id="me",
        kafka_compression="gzip", kafka_max_request_bytes=123_456,
    )  # fmt: skip
    assert (conf.broker_session_timeout, conf.broker_request_timeout, conf.producer_request_timeout) == (45, 45, 20)
    assert conf.broker_heartbeat_interval == 3
    assert (conf.consumer_group_instance_id, conf.broker_client_id) == ("pod-1", "me")
    assert (conf.producer_compression_type, conf.producer_max_request_size) == ("gzip", 123_456)
    assert connected(kafka_compression="none").producer_compression_type is None
    assert connected(kafka_session_timeout=3.0).broker_heartbeat_interval < 1


def test_tls_and_logins_are_ours() -> None:
    tls = connected(kafka_tls="on").broker_credentials
    assert (type(tls), tls.protocol) == (faust.SSLCredentials, AuthProtocol.SSL)
    assert isinstance(tls.context, ssl.SSLContext)

    login = {"kafka_sasl_mechanism": "SCRAM-SHA-512", "kafka_sasl_username": "me", "kafka_sasl_password": "secret"}
    plain = connected(**login).broker_credentials
    assert (plain.protocol, plain.mechanism) == (AuthProtocol.SASL_PLAINTEXT, SASLMechanism.SCRAM_SHA_512)
    assert (plain.username, plain.password, plain.ssl_context) == ("me", "secret", None)

    both = connected(kafka_tls="on", **login).broker_credentials
    assert both.protocol is AuthProtocol.SASL_SSL
    assert isinstance(both.ssl_context, ssl.SSLContext)


def test_explicit_faust_options_apply(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOPIC_PARTITIONS", "9")
    app = App("app", broker=BROKER, faust={"broker_session_timeout": 33.0})
    app.faust.config_from_object({"producer_compression_type": "snappy"})
    app.faust.connect_faust()
    app.faust.connect_faust()
    conf = app.faust.conf
    assert (conf.broker_session_timeout, conf.topic_partitions, conf.producer_compression_type) == (33, 9, "snappy")


def test_on_the_embedded_log_no_broker_is_named() -> None:
    conf = connected(broker="embedded://somewhere")
    assert "9092" not in str(conf.broker)
    assert conf.topic_partitions == 8  # Faust's own: it creates none


def test_tables_are_in_the_workers_directory_by_default(tmp_path: Path) -> None:
    conf = connected(data=tmp_path)
    assert conf.datadir == tmp_path / "app"
    keep_tables(conf, tmp_path / "app" / "worker-0", ())
    assert conf.tabledir == tmp_path / "app" / "worker-0" / "faust" / "v1" / "tables"
    assert conf.tabledir.is_dir()

    conf = connected(data=tmp_path, faust={"datadir": tmp_path / "mine"})
    keep_tables(conf, tmp_path / "app" / "worker-0", {"datadir"})
    assert conf.tabledir == tmp_path / "mine" / "v1" / "tables"
    assert conf.tabledir.is_dir()
