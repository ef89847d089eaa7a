"""Tidegate's Kafka settings as options of Spark's Kafka source: TLS and SASL."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from tidegate.errors import SettingsError
from tidegate.settings import KafkaSettings

__all__ = ("connection_options",)

_KEY: Final = re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?-----END [A-Z ]*PRIVATE KEY-----", re.DOTALL)


def connection_options(settings: KafkaSettings) -> Mapping[str, str]:
    secure, login = settings.kafka_tls == "on", bool(settings.kafka_sasl_mechanism)
    protocol = ("SASL_SSL" if secure else "SASL_PLAINTEXT") if login else ("SSL" if secure else "PLAINTEXT")
    options = {"security.protocol": protocol, "client.id": f"{settings.kafka_client_id}-spark"}
    if secure:
        options |= _tls(settings)
    if login:
        options |= _login(settings)
    return {f"kafka.{name}": value for name, value in options.items()}


def _tls(settings: KafkaSettings) -> dict[str, str]:
    """PEM contents instead of paths: the Java client needs key and certificate in one file, and executors may run on
    other machines."""
    options: dict[str, str] = {}
    if settings.kafka_tls_ca:
        options |= {"ssl.truststore.type": "PEM", "ssl.truststore.certificates": _read(settings.kafka_tls_ca)}
    if settings.kafka_tls_cert:
        key = settings.kafka_tls_key or settings.kafka_tls_cert
        options |= {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.certificate.chain": _read(settings.kafka_tls_cert),
            "ssl.keystore.key": _key(key, settings.kafka_tls_key_password),
        }
    return options


def _key(path: str, password: str) -> str:
    """The key as unencrypted PKCS#8, the only form that the client reads on every Java version. (OpenSSL's encryption
    needs Java 19.)"""
    found = _KEY.search(_read(path))
    if found is None:
        raise SettingsError(f"{path!r} contains no private key in PEM format")
    try:
        from cryptography.exceptions import UnsupportedAlgorithm
        from cryptography.hazmat.primitives import serialization
    except ImportError as error:
        raise SettingsError(
            f"the key in {path!r} needs the package cryptography: pip install 'tidegate[spark]'"
        ) from error
    try:
        key = serialization.load_pem_private_key(found[0].encode(), password.encode() or None)
    except (TypeError, ValueError, UnsupportedAlgorithm) as error:
        raise SettingsError(f"the key in {path!r} cannot be read: {error}") from error
    pkcs8 = serialization.PrivateFormat.PKCS8
    return key.private_bytes(serialization.Encoding.PEM, pkcs8, serialization.NoEncryption()).decode()


def _read(path: str) -> str:
    try:
        return Path(path).read_text(encoding="ascii")
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"{path!r} cannot be used for TLS: {error}") from error


def _login(settings: KafkaSettings) -> dict[str, str]:
    if not (settings.kafka_sasl_username and settings.kafka_sasl_password):
        raise SettingsError(
            f"kafka_sasl_mechanism is {settings.kafka_sasl_mechanism}, which needs a user name and a password: set "
            f"kafka_sasl_username, and the password in the environment variable TIDEGATE_KAFKA_SASL_PASSWORD"
        )
    plain = settings.kafka_sasl_mechanism == "PLAIN"
    module = "plain.PlainLoginModule" if plain else "scram.ScramLoginModule"
    who, secret = _quoted(settings.kafka_sasl_username), _quoted(settings.kafka_sasl_password)
    jaas = f"org.apache.kafka.common.security.{module} required username={who} password={secret};"
    return {"sasl.mechanism": settings.kafka_sasl_mechanism, "sasl.jaas.config": jaas}


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
