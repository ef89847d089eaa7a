"""A broker with TLS and SASL: certificates and users are created for each run."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tidegate.jvm.java import find_java
from tidegate.settings import KafkaSettings
from tidegate_app.kafka.broker import Broker
from tidegate_app.kafka.configuration import HOST, free_port
from tidegate_app.kafka.jars import ensure_jars

__all__ = ("PASSWORD", "USER", "Secure", "SecureBroker", "started")

USER, PASSWORD = "alice", "wonder-land"
LISTENERS = {"TLS": "SSL", "MUTUAL": "SSL", "LOGIN": "SASL_PLAINTEXT", "BOTH": "SASL_SSL"}
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
PLAIN = f'org.apache.kafka.common.security.plain.PlainLoginModule required user_{USER}="{PASSWORD}";'


def openssl(directory: Path, arguments: str) -> None:
    subprocess.run(["openssl", *arguments.split()], cwd=directory, check=True, capture_output=True)


def make_certificates(directory: Path) -> None:
    """A certificate authority, and certificates signed by it for the broker and the client."""
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
        """Settings with the authority's certificate, and short timeouts."""
        return KafkaSettings(
            **{"kafka_tls_ca": str(self.certificates / "ca.pem"), "kafka_connect_timeout": 3, **settings}
        )

    def client(self, key: str, **settings: Any) -> KafkaSettings:
        cert, key = str(self.certificates / "client.pem"), str(self.certificates / key)
        return self.settings(kafka_tls="on", kafka_tls_cert=cert, kafka_tls_key=key, **settings)


@contextmanager
def started(certificates: Path, data: Path) -> Iterator[Secure]:
    make_certificates(certificates)
    broker = SecureBroker(data, certificates)
    broker.start()
    try:
        broker.add_user()
        yield Secure(broker, certificates)
    finally:
        broker.kill()
