"""TLS and logins, against a broker that asks for them: certificates and users are made for each run."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.contract.logs import new, read_all, values
from tidegate.errors import LogError, LogUnavailableError, SettingsError
from tidegate.jvm.java import find_java
from tidegate.logs.base import TopicPartition, TopicSpec
from tidegate.logs.kafka import KafkaLog
from tidegate.settings import KafkaSettings
from tidegate_app.kafka.broker import Broker
from tidegate_app.kafka.configuration import HOST, free_port
from tidegate_app.kafka.jars import ensure_jars

USER, PASSWORD = "alice", "wonder-land"
LISTENERS = {"TLS": "SSL", "MUTUAL": "SSL", "LOGIN": "SASL_PLAINTEXT", "BOTH": "SASL_SSL"}
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
PLAIN = f'org.apache.kafka.common.security.plain.PlainLoginModule required user_{USER}="{PASSWORD}";'


def openssl(directory: Path, arguments: str) -> None:
    subprocess.run(["openssl", *arguments.split()], cwd=directory, check=True, capture_output=True)


def make_certificates(directory: Path) -> None:
    """An authority, and one certificate signed by it for the broker and one for the client."""
    openssl(directory, "req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=authority -keyout ca.key -out ca.pem")
    (directory / "san").write_text(f"subjectAltName=IP:{HOST}\n")
    for name in ("server", "client"):
        openssl(directory, f"req -newkey rsa:2048 -nodes -subj /CN={name} -keyout {name}.key -out {name}.csr")
        sign = f"x509 -req -in {name}.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 -extfile san -out {name}.pem"
        openssl(directory, sign)
    (directory / "server.store").write_text(
        (directory / "server.key").read_text() + (directory / "server.pem").read_text()
    )
    openssl(directory, "pkcs8 -topk8 -in client.key -out client.locked -passout pass:open-sesame")


class SecureBroker(Broker):
    """A broker with a listener of each kind besides the plain one."""

    def __init__(self, data: Path, certificates: Path) -> None:
        super().__init__(data)
        self.certificates = certificates
        self.ports = {name: free_port() for name in LISTENERS}

    def _configure(self, port: int) -> None:
        super()._configure(port)
        lines = dict(line.split("=", 1) for line in self._layout.properties.read_text().splitlines())
        more = "".join(f",{name}://{HOST}:{port}" for name, port in self.ports.items())
        lines["listeners"] += more
        lines["advertised.listeners"] += more
        lines["listener.security.protocol.map"] += "".join(f",{name}:{kind}" for name, kind in LISTENERS.items())
        lines |= self._security()
        self._layout.properties.write_text("".join(f"{name}={value}\n" for name, value in lines.items()))

    def _security(self) -> Mapping[str, str]:
        lines = {"sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512"}
        for listener in ("tls", "mutual", "both"):
            prefix = f"listener.name.{listener}.ssl"
            lines[f"{prefix}.keystore.type"] = lines[f"{prefix}.truststore.type"] = "PEM"
            lines[f"{prefix}.keystore.location"] = str(self.certificates / "server.store")
            lines[f"{prefix}.truststore.location"] = str(self.certificates / "ca.pem")
            lines[f"{prefix}.client.auth"] = "required" if listener == "mutual" else "none"
        for listener in ("login", "both"):
            prefix = f"listener.name.{listener}"
            lines[f"{prefix}.plain.sasl.jaas.config"] = PLAIN
            lines[f"{prefix}.scram-sha-256.sasl.jaas.config"] = SCRAM
            lines[f"{prefix}.scram-sha-512.sasl.jaas.config"] = SCRAM
        return lines

    def add_user(self) -> None:
        """For SCRAM; the users of PLAIN are in the configuration."""
        tool = [str(find_java()), "-cp", f"{ensure_jars()}/*", "kafka.admin.ConfigCommand"]
        user = ["--bootstrap-server", self.address, "--entity-type", "users", "--entity-name", USER]
        for bits in (256, 512):
            password = f"SCRAM-SHA-{bits}=[password={PASSWORD}]"
            subprocess.run([*tool, *user, "--alter", "--add-config", password], check=True, capture_output=True)

    def url_of(self, listener: str) -> str:
        return f"kafka://{HOST}:{self.ports[listener]}"


@dataclass(frozen=True)
class Secure:
    broker: SecureBroker
    certificates: Path

    def settings(self, **settings: Any) -> KafkaSettings:
        """With the authority's certificate, and no patience."""
        return KafkaSettings(
            **{"kafka_tls_ca": str(self.certificates / "ca.pem"), "kafka_connect_timeout": 3, **settings}
        )

    def client(self, key: str, **settings: Any) -> KafkaSettings:
        cert, key = str(self.certificates / "client.pem"), str(self.certificates / key)
        return self.settings(kafka_tls="on", kafka_tls_cert=cert, kafka_tls_key=key, **settings)


@pytest.fixture(scope="module")
def secure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secure]:
    certificates = tmp_path_factory.mktemp("certificates")
    make_certificates(certificates)
    broker = SecureBroker(tmp_path_factory.mktemp("secure"), certificates)
    broker.start()
    try:
        broker.add_user()
        yield Secure(broker, certificates)
    finally:
        broker.kill()


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


async def test_a_broker_whose_certificate_nobody_vouches_for_is_not_spoken_to(secure: Secure) -> None:
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


async def test_speaking_plainly_to_a_broker_that_wants_tls_says_what_was_spoken(secure: Secure) -> None:
    log = KafkaLog(secure.broker.url_of("TLS"), secure.settings(kafka_connect_timeout=1))
    with pytest.raises(LogUnavailableError, match="listen for PLAINTEXT"):
        await log.start()


def test_a_login_without_a_password_is_refused_before_anything_is_sent() -> None:
    with pytest.raises(SettingsError, match="TIDEGATE_KAFKA_SASL_PASSWORD"):
        KafkaLog("kafka://127.0.0.1:9", KafkaSettings(kafka_sasl_mechanism="PLAIN", kafka_sasl_username=USER))


def test_a_certificate_that_cannot_be_read_is_refused_with_its_name(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"nowhere\.pem"):
        KafkaLog("kafka://127.0.0.1:9", KafkaSettings(kafka_tls="on", kafka_tls_ca=str(tmp_path / "nowhere.pem")))
