"""Tidegate's settings for TLS and logins, as the Java client of Spark wants them."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
)

from tidegate.errors import SettingsError
from tidegate.settings import Settings
from tidegate_spark.reading.kafka_options import connection_options


def with_key(directory: Path, form: PrivateFormat, password: str = "") -> Settings:
    for name in ("ca", "cert"):
        (directory / name).write_text(f"PEM of {name}")
    locked = BestAvailableEncryption(password.encode()) if password else NoEncryption()
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    (directory / "key").write_bytes(key.private_bytes(Encoding.PEM, form, locked))
    return Settings(
        kafka_tls="on",
        kafka_tls_ca=str(directory / "ca"),
        kafka_tls_cert=str(directory / "cert"),
        kafka_tls_key=str(directory / "key"),
        kafka_tls_key_password=password,
    )


def test_without_any_it_is_plain() -> None:
    assert connection_options(Settings()) == {
        "kafka.security.protocol": "PLAINTEXT",
        "kafka.client.id": "tidegate-spark",
    }


def test_certificates_go_by_their_contents(tmp_path: Path) -> None:
    options = connection_options(with_key(tmp_path, PrivateFormat.PKCS8))

    assert options["kafka.security.protocol"] == "SSL"
    assert options["kafka.ssl.truststore.certificates"] == "PEM of ca"
    assert options["kafka.ssl.keystore.certificate.chain"] == "PEM of cert"
    assert options["kafka.ssl.keystore.key"] == (tmp_path / "key").read_text()


def test_a_key_without_the_extra_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = with_key(tmp_path, PrivateFormat.PKCS8)
    monkeypatch.setitem(sys.modules, "cryptography.exceptions", None)
    with pytest.raises(SettingsError, match=r"pip install 'tidegate\[spark\]'"):
        connection_options(settings)


@pytest.mark.parametrize(
    ("form", "password"), [(PrivateFormat.TraditionalOpenSSL, ""), (PrivateFormat.PKCS8, "open-sesame")]
)
def test_keys_of_all_formats_are_converted_for_java(tmp_path: Path, form: PrivateFormat, password: str) -> None:
    settings = with_key(tmp_path, form, password)

    options = connection_options(settings)

    assert options["kafka.ssl.keystore.key"].startswith("-----BEGIN PRIVATE KEY-----")
    assert "kafka.ssl.key.password" not in options


def test_a_key_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    settings = with_key(tmp_path, PrivateFormat.PKCS8, "open-sesame")
    with pytest.raises(SettingsError, match=r"the key in .*key' cannot be read"):
        connection_options(dataclasses.replace(settings, kafka_tls_key_password="wrong"))
    (tmp_path / "key").write_text("nothing")
    with pytest.raises(SettingsError, match="contains no private key"):
        connection_options(settings)


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
