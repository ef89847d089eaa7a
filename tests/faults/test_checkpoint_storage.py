"""A storage for checkpoints that is full, emptied or gone: checkpoints fail, and that shows; processing goes on; the
next one succeeds as soon as it can."""

from __future__ import annotations

import hashlib
import re
import shutil
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.faults.conftest import NewEmbeddedWorld
from tests.faults.support import oracle
from tests.faults.support.disk import Ballast, Mount
from tests.faults.support.embedded import EmbeddedWorld
from tests.faults.support.processes import WorkerProcess
from tests.s3 import running
from tidegate.checkpoints.storage.checkpoint_storage import CheckpointStorage
from tidegate.checkpoints.storage.manifest import FileRef
from tidegate.checkpoints.storage.reader import open_checkpoint
from tidegate.errors import StorageFullError

FEED = "tests.faults.support.feed:send_entries"
INTERVAL = 0.2
SECONDS = 90.0


class Watched:
    """A worker that takes checkpoints under load, seen through its API."""

    def __init__(self, new_world: NewEmbeddedWorld, storage: str, **environment: str) -> None:
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            address = f"127.0.0.1:{taken.getsockname()[1]}"
        self.world: EmbeddedWorld = new_world(
            "ledger",
            TIDEGATE_CHECKPOINT_INTERVAL=str(INTERVAL),
            TIDEGATE_CHECKPOINT_STORAGE=storage,
            TIDEGATE_API=address,
            TIDEGATE_RETENTION_HOURS="0",
            **environment,
        )
        self.storage = CheckpointStorage(storage, "ledger")
        self._http = httpx.Client(base_url=f"http://{address}", timeout=60.0)
        self.life: WorkerProcess = self.world.live(
            until_end=False, feed=FEED, environment={"TIDEGATE_SEED": str(self.world.seed)}
        )
        self.until(lambda: self.progress()["last_complete"] is not None, "take a checkpoint")

    def close(self) -> None:
        self._http.close()

    def until(self, condition: Callable[[], Any], what: str) -> None:
        deadline = time.monotonic() + SECONDS
        while not _quietly(condition):
            told = self.world.with_seed(f"it does not {what}:\n{self.life.output[-3000:]}")
            assert not self.life.over, told
            assert time.monotonic() < deadline, told
            time.sleep(0.05)

    def progress(self) -> dict[str, Any]:
        return dict(self.listed()["progress"])

    def listed(self) -> dict[str, Any]:
        return dict(self._http.get("/v1/checkpoints").raise_for_status().json())

    def metric(self, name: str) -> float:
        found = re.search(rf"^{re.escape(name)} (\S+)$", self._http.get("/metrics").text, flags=re.MULTILINE)
        assert found, name
        return float(found[1])

    # -- what must hold ----------------------------------------------------------------------------------------------
    def fails(self, error: str) -> None:
        """Every checkpoint fails and is reported as failed; processing continues."""
        self.until(lambda: self.metric("tidegate_checkpoint_failures") >= 2, "fail to take checkpoints")
        aborted = self.metric('tidegate_checkpoints_total{outcome="aborted"}')
        assert aborted >= 2
        listed = self.listed()
        assert listed["progress"]["healthy"] is False
        assert error in listed["progress"]["last_failed"]["reason"]
        assert self._http.get("/readyz").status_code == 200, "it still does its work"
        assert self._http.get("/livez").status_code == 200
        before = self.world.observed("postings")
        self.until(lambda: self.world.observed("postings") > before + 50, "go on processing")
        assert self.metric("tidegate_checkpoint_failures") >= 2

    def succeeds(self) -> None:
        """Without a request and without a restart."""
        before = self.metric("tidegate_checkpoint_epoch")
        self.until(lambda: self.metric("tidegate_checkpoint_epoch") > before, "take a checkpoint again")
        self.until(lambda: self.progress()["healthy"] is True, "say that all is well")

    def ends_well(self) -> None:
        """The newest checkpoints are complete: a worker without local state can start from them."""
        self.life.kill()
        found = self.storage.checkpoints()
        assert found
        open_checkpoint(self.storage, found[0]).verify()
        world = self.world
        world.lose_stores()
        last = world.drain()
        assert "is skipped" not in last.output, world.with_seed(last.output)
        oracle.check_ledger(world, world.look())


def _quietly(condition: Callable[[], Any]) -> Any:
    """The API may not be up yet, or be busy."""
    try:
        return condition()
    except (httpx.HTTPError, AssertionError):
        return False


def test_a_full_storage_fails_checkpoints_only(
    new_embedded_world: NewEmbeddedWorld, mount: Mount, tmp_path: Path
) -> None:
    room = mount(tmp_path / "room")
    ballast = Ballast(room)
    watched = Watched(new_embedded_world, str(room / "checkpoints"))
    ballast.fill()
    watched.fails("No space left on device")
    left = sorted(watched.storage.epochs())
    newest = max(watched.storage.checkpoints())
    assert len([epoch for epoch in left if epoch > newest]) <= 2, "each attempt removes what the one before has left"
    ballast.drop()
    watched.succeeds()
    watched.ends_well()
    watched.close()


def test_a_missing_storage_fails_checkpoints_only(new_embedded_world: NewEmbeddedWorld, tmp_path: Path) -> None:
    """As when something is not mounted any more, and its place cannot be written to."""
    place = tmp_path / "checkpoints"
    watched = Watched(new_embedded_world, str(place))
    _take_away(place, tmp_path / "away")
    watched.fails("cannot be used")
    assert "cannot be used" in watched.listed()["error"]
    place.unlink()
    (tmp_path / "away").rename(place)
    watched.succeeds()
    watched.ends_well()
    watched.close()


def _take_away(place: Path, to: Path) -> None:
    """A file is there instead: a worker would make the folders that it misses."""
    place.rename(to)
    while True:
        try:
            place.open("x").close()
        except FileExistsError:
            shutil.rmtree(place, ignore_errors=True)  # it was quicker
        else:
            return


def test_an_emptied_storage_gets_a_complete_checkpoint_again(
    new_embedded_world: NewEmbeddedWorld, tmp_path: Path
) -> None:
    """Later checkpoints share files with earlier ones: none may refer to a deleted file."""
    place = tmp_path / "checkpoints"
    watched = Watched(new_embedded_world, str(place))
    shutil.rmtree(place, ignore_errors=True)
    watched.succeeds()
    watched.succeeds()
    for folder in (place / "ledger" / "checkpoints").glob("*/files"):
        shutil.rmtree(folder, ignore_errors=True)
    watched.succeeds()  # it may have been under way
    watched.succeeds()
    watched.ends_well()
    watched.close()


def test_an_unavailable_s3_server_fails_checkpoints_only(
    new_embedded_world: NewEmbeddedWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    with running(monkeypatch) as (server, bucket):
        watched = Watched(new_embedded_world, f"s3://{bucket}/place", AWS_MAX_ATTEMPTS="1", **server.environment)
        server.stop()
        watched.fails("cannot be used")
        assert "cannot be used" in watched.listed()["error"]
        server.start()
        watched.succeeds()
        watched.ends_well()
        watched.close()


def test_a_full_local_disk_is_not_reported_as_a_storage_error(mount: Mount, tmp_path: Path) -> None:
    """A restore downloads files to the temporary directory."""
    storage, raw = CheckpointStorage(str(tmp_path / "kept"), "shop"), bytes(1 << 20)
    storage.put("files/x", raw)
    room = mount(tmp_path / "room")
    Ballast(room).fill()
    file = FileRef(name="x", path="files/x", size=len(raw), sha256=hashlib.sha256(raw).hexdigest())
    with pytest.raises(StorageFullError, match=f"no space left under {room}"):
        storage.fetch(file, "", room / "x")
