"""A storage that hangs without an error: checkpoints are aborted in time, and everything else continues."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any, ClassVar

import fsspec
import pytest
from fsspec.implementations.memory import MemoryFileSystem

from tests.support import running
from tidegate import App, Context, ValueState
from tidegate.host.host import Host
from tidegate.logs.base import TopicPartition

app = App("hung")
words = app.topic("words", value_type=str, key=lambda word: word, partitions=2)


@app.process(words)
async def counter(ctx: Context, word: str, count: ValueState[int | None]) -> None:
    count.value = (count.value or 0) + 1


class HangingFileSystem(MemoryFileSystem):  # type: ignore[misc]
    """In memory; some of its calls do not come back before the gate is opened."""

    protocol = "hanging"
    store: ClassVar[dict[str, Any]] = {}
    pseudo_dirs: ClassVar[list[str]] = [""]
    armed: ClassVar[tuple[str, str] | None] = None
    """Which calls hang: their name, and what is in the path."""
    gate: ClassVar[threading.Event] = threading.Event()
    hung: ClassVar[int] = 0

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        return str(super()._strip_protocol(path.replace("hanging://", "/")))

    def _pass(self, call: str, path: str) -> None:
        cls = type(self)
        if cls.armed is not None and cls.armed[0] == call and cls.armed[1] in path:
            cls.hung += 1
            cls.gate.wait(120)

    def ls(self, path: str, *args: Any, **kwargs: Any) -> Any:
        self._pass("ls", path)
        return super().ls(path, *args, **kwargs)

    def put_file(self, local: str, path: str, *args: Any, **kwargs: Any) -> Any:
        self._pass("put_file", path)
        return super().put_file(local, path, *args, **kwargs)

    def pipe_file(self, path: str, *args: Any, **kwargs: Any) -> Any:
        self._pass("pipe_file", path)
        return super().pipe_file(path, *args, **kwargs)

    def cat_file(self, path: str, *args: Any, **kwargs: Any) -> Any:
        self._pass("cat_file", path)
        return super().cat_file(path, *args, **kwargs)

    def rm_file(self, path: str) -> Any:
        self._pass("rm_file", path)
        return super().rm_file(path)


@pytest.fixture(autouse=True)
def storage() -> Iterator[type[HangingFileSystem]]:
    fsspec.register_implementation("hanging", HangingFileSystem, clobber=True)
    HangingFileSystem.store.clear()
    HangingFileSystem.armed, HangingFileSystem.gate, HangingFileSystem.hung = None, threading.Event(), 0
    yield HangingFileSystem
    HangingFileSystem.armed = None
    HangingFileSystem.gate.set()


def worker(directory: Path) -> AbstractAsyncContextManager[Host]:
    return running(
        app,
        directory,
        checkpoint_storage="hanging://place",
        checkpoint_interval=0.1,
        checkpoint_timeout=0.5,
        checkpoint_keep=1,
    )


async def until(condition: Callable[[], bool], seconds: float = 20.0) -> None:
    async with asyncio.timeout(seconds):
        while not condition():  # noqa: ASYNC110  threads tell nobody
            await asyncio.sleep(0.01)


async def handle_one(host: Host) -> None:
    """Processing continues: a word is sent and committed."""
    task = host.engine.tasks["counter.0"]
    before = task.store.position
    await host.producer.send(TopicPartition("words", 0), (b"a", b'"tea"', 0, ()))
    await until(lambda: task.store.position != before, 5)


HANGS = {
    "to begin": ("ls", "checkpoints"),
    "to upload": ("put_file", ""),
    "to describe a task": ("pipe_file", "/tasks/"),
    "to read what tasks say": ("cat_file", "/tasks/"),
    "to put the manifest": ("pipe_file", "manifest.json"),
}


@pytest.mark.parametrize("hang", HANGS.values(), ids=HANGS)
async def test_a_hanging_storage_fails_checkpoints_only(
    hang: tuple[str, str], storage: type[HangingFileSystem], tmp_path: Path
) -> None:
    async with worker(tmp_path) as host:
        status = host.checkpoints.status
        await until(lambda: status.last_complete is not None)
        storage.armed = hang
        await until(lambda: status.failures >= 2)
        assert storage.hung
        assert not status.healthy
        await handle_one(host)

        storage.armed = None
        if hang[0] == "put_file" or hang[1] == "/tasks/":
            storage.gate.set()  # there are so many uploads at a time, and those that hang are among them
        await until(lambda: status.healthy)
        stopping = time.monotonic()
    assert time.monotonic() - stopping < 10, "a worker stops although calls hang"


async def test_a_storage_that_hangs_when_it_deletes_does_not_end_checkpoints(
    storage: type[HangingFileSystem], tmp_path: Path
) -> None:
    storage.armed = ("rm_file", "")
    async with worker(tmp_path) as host:
        await until(lambda: storage.hung > 0)
        seen = host.checkpoints.status.last_complete
        assert seen is not None
        await until(lambda: (last := host.checkpoints.status.last_complete) is not None and last.epoch > seen.epoch)
        await handle_one(host)


async def test_nothing_is_deleted_while_a_manifest_may_still_appear(
    storage: type[HangingFileSystem], tmp_path: Path
) -> None:
    """It would name files that are gone."""
    async with worker(tmp_path) as host:
        await until(lambda: host.checkpoints.status.last_complete is not None)
        storage.armed = ("pipe_file", "manifest.json")
        await until(lambda: host.checkpoints.status.last_failed is not None)
        storage.armed = None
        failed = host.checkpoints.status.last_failed
        assert failed is not None
        for _ in range(3):
            last = host.checkpoints.status.last_complete
            await until(lambda seen=last: host.checkpoints.status.last_complete is not seen)  # type: ignore[misc]
        kept = await host.checkpoints.storage()
        assert len(kept.files(f"{kept.folder_of(failed.epoch)}/tasks")) == 2
        storage.gate.set()
        await until(lambda: failed.epoch not in kept.epochs())
