"""Every checkpoint is a consistent cut, whatever crashes when; and each rule of the protocol is needed for that."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.faults.support.cut import play
from tidegate.checkpoints.coordination.coordinator import Coordinator
from tidegate.engine.formats.barrier import CheckpointRecord

SAMPLE, MANY = range(25), range(100, 1100)
ROCKS = range(5000, 5120)


def run(seeds: range, directory: Path, *, rocks: bool = False) -> Counter[str]:
    total: Counter[str] = Counter()
    for seed in seeds:
        with pytest.MonkeyPatch.context() as monkeypatch:
            world = asyncio.run(play(seed, directory / str(seed), monkeypatch, rocks=rocks))
        total += world.counted
        if world.counted["live"] or world.counted["restored"]:
            total["wrong"] += 1
            total.setdefault("first wrong seed", seed)
    return total


def test_a_restore_from_any_checkpoint_counts_each_record_once(tmp_path: Path) -> None:
    total = run(SAMPLE, tmp_path)

    assert total["live"] == total["restored"] == total["errors"] == 0, total
    assert total["checkpoints"] > len(SAMPLE) // 2
    assert min(total[fault] for fault in ("crashes", "failures", "leaders", "in flight", "trims")) > 10


@pytest.mark.timeout(300)
def test_a_restore_from_any_checkpoint_is_exact_with_stores_on_disk(tmp_path: Path) -> None:
    """Until a checkpoint was complete, and four worlds at least. In one of ten it is: files take their time, and there
    is always something that crashes meanwhile."""
    total: Counter[str] = Counter()
    for number, seed in enumerate(ROCKS):
        if number >= 4 and total["checkpoints"]:
            break
        total += run(range(seed, seed + 1), tmp_path, rocks=True)

    assert total["live"] == total["restored"] == total["errors"] == 0, total
    assert total["checkpoints"]


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_a_thousand_restores_from_any_checkpoint_are_exact(tmp_path: Path) -> None:
    total = run(MANY, tmp_path)

    assert total["live"] == total["restored"] == total["errors"] == 0, total
    assert total["checkpoints"] > len(MANY) // 2


def _too_early(monkeypatch: pytest.MonkeyPatch) -> None:
    """Records of a later epoch are handled before the move."""
    monkeypatch.setattr("tidegate.engine.commit.epoch_scan.EpochScan.split", lambda _, records: [(0, 0, len(records))])


def _nothing_in_flight(monkeypatch: pytest.MonkeyPatch) -> None:
    async def none(*_: Any) -> list[Any]:
        return []

    monkeypatch.setattr("tidegate.checkpoints.coordination.coordinator.in_flight", none)


def _old_stamps(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a handler emitted before the cut, and is committed after it, keeps the stamp of the epoch before."""
    monkeypatch.setattr("tidegate.engine.processing.context.TaskContext._stamped", lambda _, emitted: emitted)


def _nothing_held(monkeypatch: pytest.MonkeyPatch) -> None:
    """The snapshot has what was applied while it was waiting to be written."""
    monkeypatch.setattr("tidegate.state.memory.MemoryStore.hold", lambda _: None)


def _retaken(monkeypatch: pytest.MonkeyPatch) -> None:
    """A task that opens in an epoch which it has not reported reports what it has by then."""
    from tidegate.engine.commit.epoch_alignment import EpochAlignment

    enter = EpochAlignment.enter

    def again(self: EpochAlignment, epoch: int) -> bool:
        under_way = self._environment.snapshots
        record = getattr(under_way, "latest", None)
        first, self.retaken = not hasattr(self, "retaken"), True  # type: ignore[attr-defined]
        retake = first and record is not None and record.state == "begun" and record.epoch == epoch == self._stamp.epoch
        return enter(self, epoch) or retake

    monkeypatch.setattr(EpochAlignment, "enter", again)
    monkeypatch.setattr("tidegate.checkpoints.coordination.ledger.Ledger._opened", lambda *_: None)


def _trimmed_too_early(monkeypatch: pytest.MonkeyPatch) -> None:
    """Consumed records are deleted while a checkpoint is under way: they may have been in flight at the cut."""
    advance = Coordinator._advance

    async def trim(self: Coordinator, barrier: CheckpointRecord) -> bool:
        return await self._trim_if_due() or await advance(self, barrier)

    monkeypatch.setattr(Coordinator, "_advance", trim)


_BROKEN = (_too_early, _nothing_in_flight, _old_stamps, _nothing_held, _retaken, _trimmed_too_early)


@pytest.mark.parametrize("broken", _BROKEN)
def test_each_alignment_rule_is_necessary(broken: Callable[[pytest.MonkeyPatch], None], tmp_path: Path) -> None:
    """Without it, some checkpoint counts a record twice or never."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        broken(monkeypatch)
        seeds = (range(start, start + 5) for start in range(0, 200, 5))
        wrong = any(run(few, tmp_path)["restored"] for few in seeds)

    assert wrong
