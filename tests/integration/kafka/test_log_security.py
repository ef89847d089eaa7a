"""TLS and logins, against a broker that asks for them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.contract.logs import new, read_all, values
from tests.secure import PASSWORD, USER, Secure, started
from tidegate.errors import LogError, LogUnavailableError, SettingsError
from tidegate.logs.base import TopicPartition, TopicSpec
from tidegate.logs.kafka import KafkaLog
from tidegate.settings import KafkaSettings


@pytest.fixture(scope="module")
def secure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secure]:
    with started(tmp_path_factory.mktemp("certificates"), tmp_path_factory.mktemp("secure")) as made:
        yield made


async def check_works(url: str, settings: KafkaSettings, topic: str) -> None:
    """Create, append in a transaction, read: all kinds of connections are made."""
    log = KafkaLog(url, settings)
    await log.start()
    try:
        await log.create([TopicSpec(name=topic, partitions=1)])
        source = TopicPartition(topic, 0)
        await (await log.writer(topic)).append({source: new(b"secret")})
        await log.writer(topic)
        assert values(await read_all(log, source)) == [b"secret"]
    finally:
        await log.stop()


async def refusal(url: str, settings: KafkaSettings) -> str:
    log = KafkaLog(url, settings)
    with pytest.raises(LogError) as error:
        await log.start()
    await log.stop()
    return str(error.value)


async def test_tls(secure: Secure) -> None:
    await check_works(secure.broker.url_of("TLS"), secure.settings(kafka_tls="on"), "tls")


async def test_a_broker_with_an_untrusted_certificate_is_refused(secure: Secure) -> None:
    message = await refusal(secure.broker.url_of("TLS"), secure.settings(kafka_tls="on", kafka_tls_ca=""))
    assert "is not trusted" in message
    assert "kafka_tls_ca" in message


@pytest.mark.parametrize(("key", "password"), [("client.key", ""), ("client.locked", "open-sesame")])
async def test_tls_with_a_certificate_of_the_client(secure: Secure, key: str, password: str) -> None:
    settings = secure.client(key, kafka_tls_key_password=password)
    await check_works(secure.broker.url_of("MUTUAL"), settings, f"mutual-{key}")


async def test_a_broker_that_asks_for_a_certificate_refuses_clients_without(secure: Secure) -> None:
    assert await refusal(secure.broker.url_of("MUTUAL"), secure.settings(kafka_tls="on"))


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
@pytest.mark.parametrize(("listener", "tls"), [("LOGIN", "off"), ("BOTH", "on")])
async def test_a_login(secure: Secure, mechanism: str, listener: str, tls: str) -> None:
    settings = secure.settings(
        kafka_tls=tls, kafka_sasl_mechanism=mechanism, kafka_sasl_username=USER, kafka_sasl_password=PASSWORD
    )
    await check_works(secure.broker.url_of(listener), settings, f"{listener}-{mechanism}")


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256"])
async def test_a_wrong_password_is_refused_at_once_and_not_shown(secure: Secure, mechanism: str) -> None:
    settings = secure.settings(
        kafka_sasl_mechanism=mechanism, kafka_sasl_username=USER, kafka_sasl_password="looking-glass"
    )
    message = await refusal(secure.broker.url_of("LOGIN"), settings)
    assert "refuses the login" in message
    assert "TIDEGATE_KAFKA_SASL_PASSWORD" in message
    assert "looking-glass" not in message


async def test_a_plaintext_connection_to_a_tls_broker_gives_an_error_with_the_protocol(secure: Secure) -> None:
    log = KafkaLog(secure.broker.url_of("TLS"), secure.settings(kafka_connect_timeout=1))
    with pytest.raises(LogUnavailableError, match="listen for PLAINTEXT"):
        await log.start()


def test_a_login_without_a_password_is_refused_before_anything_is_sent() -> None:
    with pytest.raises(SettingsError, match="TIDEGATE_KAFKA_SASL_PASSWORD"):
        KafkaLog("kafka://127.0.0.1:9", KafkaSettings(kafka_sasl_mechanism="PLAIN", kafka_sasl_username=USER))


def test_an_unreadable_certificate_is_refused_with_its_path(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"nowhere\.pem"):
        KafkaLog("kafka://127.0.0.1:9", KafkaSettings(kafka_tls="on", kafka_tls_ca=str(tmp_path / "nowhere.pem")))
