"""The Tinder example under load: at every checkpoint the inboxes, with what is on its way to them, follow from exactly
the matches that the matchmaker knows of."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import msgspec

from examples.tinder_match.app import app, inbox, likes, matchmaker, notices
from examples.tinder_match.events import Like, Notice
from tidegate.checkpoints.storage.manifest import Manifest
from tidegate.checkpoints.storage.reader import CheckpointReader
from tidegate.state.layout import keyed_prefix, parse_keyed, prefix_range
from tidegate.testing import AppHarness

CHECKPOINTS, PEOPLE = 60, 60
Told = Counter[tuple[str, str]]
"""How often a person was notified of another one."""


def test_every_checkpoint_is_a_consistent_cut(tmp_path: Path) -> None:
    dice = random.Random(20)
    in_flight = matched = 0
    with AppHarness(app, checkpoints=f"memory://{tmp_path.name}", partitions=2, checkpoint_keep=CHECKPOINTS) as harness:
        for number in range(CHECKPOINTS):
            harness.send_many(likes, some_likes(dice, number), settle=False)
            harness.run(work_a_little(harness, dice))
            look = Look(harness, harness.checkpoint(), tmp_path)
            assert look.told_or_on_its_way == look.follows_from_matches, f"checkpoint {look.manifest.epoch}"
            in_flight += look.manifest.in_flight_records
            matched = sum(look.follows_from_matches.values())
        harness.settle()

    assert in_flight > CHECKPOINTS, "some were taken while notices were on their way"
    assert matched > 100


def some_likes(dice: random.Random, number: int) -> list[Like]:
    found = []
    for step in range(40):
        liker, liked = dice.sample(range(PEOPLE), 2)
        found.append(Like(id=f"{number}-{step}", liker=f"p{liker:02}", liked=f"p{liked:02}", at=1_000 * number + step))
    return found


async def work_a_little(harness: AppHarness, dice: random.Random) -> None:
    """Some tasks handle and commit what they have read, others do not."""
    for _ in range(dice.randrange(1, 6)):
        await harness.engine.read_once()
        for task in harness.engine.tasks.values():
            if dice.random() < 0.5 and task.ready:
                task.run()
            if dice.random() < 0.4:
                await task.commit()


class Look:
    def __init__(self, harness: AppHarness, manifest: Manifest, directory: Path) -> None:
        assert harness.checkpoints is not None
        storage = harness.run(harness.checkpoints.storage())
        self.manifest, self._directory = manifest, directory
        self._reader = CheckpointReader(storage, storage.folder_of_manifest(manifest), manifest)

    @property
    def follows_from_matches(self) -> Told:
        found: Told = Counter()
        for pair, raw in self._entries(matchmaker.name, "pair"):
            if msgspec.json.decode(raw)["matched"] if b"matched" in raw else False:
                one, other = pair.split("|")
                found.update([(one, other), (other, one)])
        return found

    @property
    def told_or_on_its_way(self) -> Told:
        found: Told = Counter()
        unread = 0
        for person, raw in self._entries(inbox.name, "unread"):
            unread += msgspec.json.decode(raw, type=int)
            assert person
        for person, other in self._others():
            found[person, other] += 1
        assert unread == found.total(), "each notice counted once"
        for task in self.manifest.tasks:
            for record in self._reader.in_flight(task):
                assert record.topic == notices.name
                notice = msgspec.json.decode(record.value or b"", type=Notice)
                found[notice.person, notice.other] += 1
        return found

    def _entries(self, service: str, state: str) -> list[tuple[str, bytes]]:
        return [(parse_keyed(key).key.decode(), raw) for key, raw in self._scan(service, state)]

    def _others(self) -> list[tuple[str, str]]:
        parsed = [parse_keyed(key) for key, _ in self._scan(inbox.name, "matches")]
        return [(entry.key.decode(), entry.subkey.decode()) for entry in parsed]

    def _scan(self, service: str, state: str) -> list[tuple[bytes, bytes]]:
        found: list[tuple[bytes, bytes]] = []
        for task in self.manifest.tasks:
            if task.service == service:
                store = self._reader.open_store(task, self._directory / task.task)
                found += store.scan(*prefix_range(keyed_prefix(state)))
                store.close()
        return found
