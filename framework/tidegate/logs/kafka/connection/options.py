"""aiokafka's options from the settings: addresses, TLS, login."""

from __future__ import annotations

import ssl
from collections.abc import Mapping, Sequence
from typing import Any

from tidegate.errors import SettingsError
from tidegate.settings import KafkaSettings

__all__ = ("addresses_of", "client_options", "connection_options")


def addresses_of(broker: str) -> list[str]:
    """The bootstrap addresses of a URL such as kafka://one:9092,two:9092."""
    return broker.removeprefix("kafka://").split(",")


def client_options(addresses: Sequence[str], settings: KafkaSettings) -> Mapping[str, Any]:
    """Options of aiokafka's clients."""
    return {"bootstrap_servers": list(addresses), **connection_options(settings)}


def connection_options(settings: KafkaSettings) -> Mapping[str, Any]:
    """Options of every connection."""
    secure = settings.kafka_tls == "on"
    login = bool(settings.kafka_sasl_mechanism)
    protocol = ("SASL_SSL" if secure else "SASL_PLAINTEXT") if login else ("SSL" if secure else "PLAINTEXT")
    return {
        "client_id": settings.kafka_client_id,
        "request_timeout_ms": int(settings.kafka_request_timeout * 1000),
        "security_protocol": protocol,
        "ssl_context": _ssl_context(settings) if secure else None,
        **(_login(settings) if login else {}),
    }


def _login(settings: KafkaSettings) -> Mapping[str, Any]:
    if not (settings.kafka_sasl_username and settings.kafka_sasl_password):
        raise SettingsError(
            f"kafka_sasl_mechanism is {settings.kafka_sasl_mechanism}, which needs a name and a password: set "
            f"kafka_sasl_username, and the password in the environment variable TIDEGATE_KAFKA_SASL_PASSWORD"
        )
    return {
        "sasl_mechanism": settings.kafka_sasl_mechanism,
        "sasl_plain_username": settings.kafka_sasl_username,
        "sasl_plain_password": settings.kafka_sasl_password,
    }


def _ssl_context(settings: KafkaSettings) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=settings.kafka_tls_ca or None)
    except (OSError, ssl.SSLError) as error:
        raise SettingsError(f"kafka_tls_ca={settings.kafka_tls_ca!r} cannot be used: {error}") from error
    if settings.kafka_tls_cert:
        try:
            context.load_cert_chain(
                settings.kafka_tls_cert, settings.kafka_tls_key or None, settings.kafka_tls_key_password or None
            )
        except (OSError, ssl.SSLError) as error:
            raise SettingsError(f"kafka_tls_cert={settings.kafka_tls_cert!r} cannot be used: {error}") from error
    return context
