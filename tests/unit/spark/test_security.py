"""Tidegate's settings for TLS and logins, as the Java client of Spark wants them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tidegate.errors import SettingsError
from tidegate.settings import Settings
from tidegate_spark.security import connection_options


def test_without_any_it_is_plain() -> None:
    assert connection_options(Settings()) == {
        "kafka.security.protocol": "PLAINTEXT",
        "kafka.client.id": "tidegate-spark",
    }


def test_certificates_go_by_their_contents(tmp_path: Path) -> None:
    for name in ("ca", "cert", "key"):
        (tmp_path / name).write_text(f"PEM of {name}")
    settings = Settings(
        kafka_tls="on",
        kafka_tls_ca=str(tmp_path / "ca"),
        kafka_tls_cert=str(tmp_path / "cert"),
        kafka_tls_key=str(tmp_path / "key"),
    )

    options = connection_options(settings)

    assert options["kafka.security.protocol"] == "SSL"
    assert options["kafka.ssl.truststore.certificates"] == "PEM of ca"
    assert options["kafka.ssl.keystore.certificate.chain"] == "PEM of cert"
    assert options["kafka.ssl.keystore.key"] == "PEM of key"


@pytest.mark.parametrize(
    ("mechanism", "module"), [("PLAIN", "PlainLoginModule"), ("SCRAM-SHA-256", "ScramLoginModule")]
)
def test_a_login_is_a_line_of_jaas(mechanism: str, module: str) -> None:
    settings = Settings(
        kafka_sasl_mechanism=mechanism,  # type: ignore[arg-type]
        kafka_sasl_username="me",
        kafka_sasl_password='a"b\\c',
    )

    options = connection_options(settings)

    assert options["kafka.security.protocol"] == "SASL_PLAINTEXT"
    assert module in options["kafka.sasl.jaas.config"]
    assert options["kafka.sasl.jaas.config"].endswith('username="me" password="a\\"b\\\\c";')


def test_a_login_without_a_password_is_refused() -> None:
    with pytest.raises(SettingsError, match="TIDEGATE_KAFKA_SASL_PASSWORD"):
        connection_options(Settings(kafka_sasl_mechanism="PLAIN"))


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="nothing"):
        connection_options(Settings(kafka_tls="on", kafka_tls_ca=str(tmp_path / "nothing")))


def test_a_key_that_java_does_not_read_is_refused_with_the_way_out(tmp_path: Path) -> None:
    for name in ("cert", "key"):
        (tmp_path / name).write_text("-----BEGIN RSA PRIVATE KEY-----")
    settings = Settings(kafka_tls="on", kafka_tls_cert=str(tmp_path / "cert"), kafka_tls_key=str(tmp_path / "key"))

    with pytest.raises(SettingsError, match="openssl pkcs8 -topk8"):
        connection_options(settings)
