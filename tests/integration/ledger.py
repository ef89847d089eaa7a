"""A project whose data an earlier version wrote: see earlier/README.md."""

from __future__ import annotations

import json
import lzma
import tarfile
from pathlib import Path
from typing import Any

from tests.integration.commands import Project, Running
from tests.integration.earlier import story

__all__ = ("Ledger", "expected")

_EARLIER = Path(__file__).parent / "earlier"


def expected(log: str, what: str) -> dict[str, Any]:
    """What the earlier version found itself."""
    with lzma.open(_EARLIER / "expected.json.xz") as file:
        found = json.load(file)[log][what]
    return {"replies": found.pop("replies", None), **story.settled(found)}


class Ledger(Project):
    def __init__(self, directory: Path, log: str) -> None:
        with tarfile.open(_EARLIER / f"{log}.tar.xz") as archive:
            archive.extractall(directory, filter="data")
        super().__init__(directory, ledger=(_EARLIER / story.APP).read_text())
        self.broker = "embedded://"

    def start(self, *arguments: str, stdin: str | Path = "", program: str = "tidegate", **environment: str) -> Running:
        settings = {
            "TIDEGATE_BROKER": self.broker,
            "TIDEGATE_RETENTION_HOURS": "0",
            "TIDEGATE_KAFKA_SESSION_TIMEOUT": "6",
        }
        return super().start(*arguments, stdin=stdin, program=program, **{**settings, **environment})

    def printed(self, *arguments: str, stdin: str = "") -> str:
        return self.run(*arguments, stdin=stdin).stdout

    def contents(self, replies: list[int] | None = None) -> dict[str, Any]:
        return {"replies": replies, **story.settled(story.contents(self.printed))}

    def go_on(self) -> dict[str, Any]:
        """Messages that were sent before and new ones, new orders, and the end of time."""
        with self.worker(story.APP, "--no-api"):
            replies = story.replies(self.printed)
            self.run("send", story.APP, "ledger-orders", stdin=story.orders(*story.MORE))
        self.finish()
        return self.contents(replies)

    def finish(self) -> None:
        self.run("worker", story.APP, "--until-end", "--no-api")

    def overdue(self) -> dict[str, int]:
        """How often the timer fired that was due a minute after the earlier version was killed."""
        return {line["key"]: line["value"] for line in self.json("state", "list", story.APP, "customers", "sooner")}
