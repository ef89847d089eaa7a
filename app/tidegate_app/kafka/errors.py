"""Every error of a broker that Tidegate runs itself. Those about Java and jars are in tidegate.jvm.errors.

TidegateError
└── KafkaError
    └── BrokerError                the broker does not do what it should
        ├── NeverStartedError      it has no port yet
        ├── PortTakenError         something else listens on its port
        ├── OtherPortError         it runs already, on another port than was asked for
        ├── FormatError            its storage cannot be formatted
        ├── BrokerDiedError        its process ended by itself
        ├── BrokerSilentError      it runs, and does not answer
        ├── StuckError             its process does not end, or never began
        └── ExternalBrokerError    TIDEGATE_TEST_BROKER does not answer
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
    """The root of what can go wrong with a broker of our own."""


class BrokerError(KafkaError):
    """The broker does not do what it should."""


class NeverStartedError(BrokerError):
    def __init__(self, data: Path) -> None:
        self.data = data
        super().__init__(f"the broker of {data} was never started, so it has no address yet. Start it first.")


class PortTakenError(BrokerError):
    def __init__(self, port: int) -> None:
        self.port = port
        super().__init__(f"something else listens on 127.0.0.1:{port}. Stop it, or choose another port: --port N.")


class OtherPortError(BrokerError):
    def __init__(self, data: Path, running: int, wanted: int) -> None:
        self.data, self.running, self.wanted = data, running, wanted
        super().__init__(
            f"the broker of {data} runs already, on port {running} and not {wanted}. Stop it first, "
            f"or give the second one a directory of its own: --data DIR."
        )


class FormatError(BrokerError):
    def __init__(self, storage: Path, last: Iterable[str]) -> None:
        self.storage, self.last = storage, tuple(last)
        super().__init__(f"{storage} cannot be formatted for Kafka:\n{_listed(self.last)}")


class BrokerDiedError(BrokerError):
    def __init__(self, log: Path, last: Iterable[str]) -> None:
        self.log, self.last = log, tuple(last)
        super().__init__(f"the broker ended by itself. The last lines of {log}:\n{_listed(self.last)}")


class BrokerSilentError(BrokerError):
    def __init__(self, address: str, seconds: float, log: Path, last: Iterable[str]) -> None:
        self.address, self.seconds, self.log, self.last = address, seconds, log, tuple(last)
        super().__init__(
            f"the broker at {address} does not answer within {seconds:g} s. The last lines of {log}:\n"
            f"{_listed(self.last)}"
        )


class StuckError(BrokerError):
    def __init__(self, lock: Path) -> None:
        self.lock = lock
        super().__init__(
            f"{lock} is held by a process that neither becomes a broker nor ends. Find it (lsof {lock}) and end it."
        )


class ExternalBrokerError(BrokerError):
    def __init__(self, named: str) -> None:
        self.named = named
        super().__init__(
            f"TIDEGATE_TEST_BROKER={named} does not answer. Start that broker, write it as kafka://HOST:PORT, "
            f"or unset the variable: then the tests start one of their own."
        )


def _listed(lines: Iterable[str]) -> str:
    return "\n".join(f"  {line}" for line in lines)
