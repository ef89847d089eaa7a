"""The broker's configuration files: server.properties and log4j2.xml."""

from __future__ import annotations

import random
import socket
import string
from pathlib import Path
from typing import Final

__all__ = ("HOST", "JVM_OPTIONS", "free_port", "is_free", "log_configuration", "server_properties")

HOST: Final = "127.0.0.1"
"""Loopback only: this broker has no authentication."""

JVM_OPTIONS: Final = ("-Xms256m", "-Xmx512m", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20", "-Djava.awt.headless=true")

_PLAIN: Final = frozenset(string.ascii_letters + string.digits + string.punctuation) - {"\\"}

_SETTINGS: Final = {
    # One node is broker and controller.
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.listener.names": "CONTROLLER",
    "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
    # Internal topics for a single node. Few partitions, since each is loaded at a restart.
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "4",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "share.coordinator.state.topic.num.partitions": "1",
    # The first member of a group does not wait for others.
    "group.initial.rebalance.delay.ms": "0",
    # Tests of failed members need short session timeouts; the default is 6 s.
    "group.min.session.timeout.ms": "1000",
    # After kill -9 the controller accepts the broker again only when its old session has expired; the default is 9 s.
    "broker.heartbeat.interval.ms": "500",
    "broker.session.timeout.ms": "3000",
    # A quarter of the default, which would use a quarter of the heap.
    "log.cleaner.dedupe.buffer.size": "33554432",
    "num.recovery.threads.per.data.dir": "2",
}


def server_properties(port: int, controller_port: int, logs: Path) -> str:
    settings = {
        **_SETTINGS,
        "listeners": f"PLAINTEXT://{HOST}:{port},CONTROLLER://{HOST}:{controller_port}",
        "advertised.listeners": f"PLAINTEXT://{HOST}:{port}",
        "controller.quorum.voters": f"1@{HOST}:{controller_port}",
        "log.dirs": _property(str(logs)),
    }
    return "".join(f"{name}={value}\n" for name, value in settings.items())


def _property(value: str) -> str:
    """Escape a value for java.util.Properties: backslashes and non-ASCII characters."""
    units = value.encode("utf-16-be")
    pairs = (units[at : at + 2] for at in range(0, len(units), 2))
    return "".join(chr(pair[1]) if pair[0] == 0 and chr(pair[1]) in _PLAIN else f"\\u{pair.hex()}" for pair in pairs)


def log_configuration() -> str:
    """The path of the log is in the system property broker.log."""
    return """\
<Configuration status="warn" shutdownHook="disable">
  <Appenders>
    <RollingFile name="file" fileName="${sys:broker.log}" filePattern="${sys:broker.log}.%i">
      <PatternLayout pattern="[%d] %p %m (%c)%n"/>
      <SizeBasedTriggeringPolicy size="20 MB"/>
      <DefaultRolloverStrategy max="3"/>
    </RollingFile>
  </Appenders>
  <Loggers>
    <Root level="info"><AppenderRef ref="file"/></Root>
  </Loggers>
</Configuration>
"""


def free_port() -> int:
    """A free port below the kernel's ephemeral range: otherwise a client that reconnects to a stopped broker could get
    the broker's own port for its connection, and prevent the restart."""
    ports = random.SystemRandom()
    while True:
        port = ports.randrange(20000, 32000)
        if is_free(port):
            return port


def is_free(port: int) -> bool:
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((HOST, port))
        except OSError:
            return False
    return True
