"""Errors of a broker that Tidegate runs. Errors about Java and jars are in tidegate.jvm.errors.

TidegateError
└── KafkaError
    └── BrokerError                the broker cannot be used
        ├── NeverStartedError      it was never started and has no port
        ├── PortTakenError         another process listens on its port
        ├── OtherPortError         it runs already, on another port than requested
        ├── FormatError            its storage cannot be formatted
        ├── BrokerDiedError        its process has ended unexpectedly
        ├── BrokerSilentError      its process runs, but does not respond
        ├── StuckError             its process neither starts nor ends
        └── ExternalBrokerError    TIDEGATE_TEST_BROKER does not respond
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from tidegate.errors import TidegateError

__all__ = (
    "BrokerDiedError",
    "BrokerError",
    "BrokerSilentError",
    "ExternalBrokerError",
    "FormatError",
    "KafkaError",
    "NeverStartedError",
    "OtherPortError",
    "PortTakenError",
    "StuckError",
)


class KafkaError(TidegateError):
    """The root of the errors of a broker that Tidegate runs."""


class BrokerError(KafkaError):
    """The broker cannot be used."""


class NeverStartedError(BrokerError):
    def __init__(self, data: Path) -> None:
        self.data = data
        super().__init__(f"the broker of {data} was never started, so it has no address yet. Start it first.")


class PortTakenError(BrokerError):
    def __init__(self, port: int) -> None:
        self.port = port
        super().__init__(f"another process listens on 127.0.0.1:{port}. Stop it, or choose another port: --port N.")


class OtherPortError(BrokerError):
    def __init__(self, data: Path, running: int, wanted: int) -> None:
        self.data, self.running, self.wanted = data, running, wanted
        super().__init__(
            f"the broker of {data} runs already, on port {running} and not {wanted}. Stop it first, "
            f"or choose another directory for a second broker: --data DIR."
        )


class FormatError(BrokerError):
    def __init__(self, storage: Path, last: Iterable[str]) -> None:
        self.storage, self.last = storage, tuple(last)
        super().__init__(f"{storage} cannot be formatted for Kafka:\n{_listed(self.last)}")


class BrokerDiedError(BrokerError):
    def __init__(self, log: Path, last: Iterable[str]) -> None:
        self.log, self.last = log, tuple(last)
        super().__init__(f"the broker has ended unexpectedly. The last lines of {log}:\n{_listed(self.last)}")


class BrokerSilentError(BrokerError):
    def __init__(self, address: str, seconds: float, log: Path, last: Iterable[str]) -> None:
        self.address, self.seconds, self.log, self.last = address, seconds, log, tuple(last)
        super().__init__(
            f"the broker at {address} did not respond within {seconds:g} s. The last lines of {log}:\n"
            f"{_listed(self.last)}"
        )


class StuckError(BrokerError):
    def __init__(self, lock: Path) -> None:
        self.lock = lock
        super().__init__(
            f"{lock} is held by a process that neither starts a broker nor ends. Find it (lsof {lock}) and kill it."
        )


class ExternalBrokerError(BrokerError):
    def __init__(self, named: str) -> None:
        self.named = named
        super().__init__(
            f"TIDEGATE_TEST_BROKER={named} does not respond. Start that broker, write it as kafka://HOST:PORT, "
            f"or unset the variable, so that the tests start a broker themselves."
        )


def _listed(lines: Iterable[str]) -> str:
    return "\n".join(f"  {line}" for line in lines)
