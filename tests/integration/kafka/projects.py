"""A project whose app shares its broker with other tests: its names are unique."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from tests.integration.commands import Project, Running, lines
from tests.integration.conftest import HELLO

__all__ = ("KafkaProject", "eventually")


class KafkaProject(Project):
    """`hello.py`, with a unique app id and topics, and every command on the broker."""

    def __init__(self, directory: Path, broker: str, app: str | None = None, **files: str) -> None:
        self.broker = broker
        self.app = app or f"hello-{uuid.uuid4().hex[:8]}"
        text = HELLO.replace('App("hello")', f'App("{self.app}")')
        for topic in ("greetings", "counts", "notes"):
            text = text.replace(f'app.topic("{topic}"', f'app.topic("{self.topic(topic)}"')
        super().__init__(directory, hello=text, **files)

    def topic(self, name: str) -> str:
        return f"{self.app}-{name}"

    def start(self, *arguments: str, stdin: str | Path = "", program: str = "tidegate", **environment: str) -> Running:
        environment = {"TIDEGATE_BROKER": self.broker, "TIDEGATE_KAFKA_SESSION_TIMEOUT": "6", **environment}
        return super().start(*arguments, stdin=stdin, program=program, **environment)

    # -- what tests do with it ---------------------------------------------------------------------------------------
    def greet(self, names: Iterable[str], **options: str) -> None:
        values: Iterable[Mapping[str, str]] = ({"name": name, **options} for name in names)
        self.run("send", "hello.py", self.topic("greetings"), stdin=lines(values))

    def counted(self, count: int) -> list[tuple[str, int]]:
        """Wait until so many counts are committed; return key and count of each."""
        printed = self.json("tail", "hello.py", self.topic("counts"), "--from-beginning", "--count", str(count))
        return [(line["key"], line["value"]["count"]) for line in printed]

    def all_counted(self) -> list[tuple[str, int]]:
        """The existing ones."""
        printed = self.json("tail", "hello.py", self.topic("counts"), "--until-end")
        return [(line["key"], line["value"]["count"]) for line in printed]

    def seen(self, *arguments: str) -> dict[str, int]:
        printed = self.json("state", "list", "hello.py", "greeter", "seen", *arguments)
        return {line["key"]: line["value"] for line in printed}


def eventually(look: Callable[[], Any], *, seconds: float = 40.0) -> Any:
    """What `look` returns, as soon as that is true."""
    deadline = time.monotonic() + seconds
    while not (found := look()):
        assert time.monotonic() < deadline, "it does not come"
        time.sleep(0.05)
    return found
