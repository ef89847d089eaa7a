"""Undecodable records and failed handlers, by error policy, under kills: each is dead-lettered or skipped once."""

from __future__ import annotations

import random
from collections import Counter

import msgspec
import pytest

from tests.faults.conftest import NewWorld
from tests.faults.support import oracle
from tests.faults.support.apps import PARTITIONS, RETRIES, Entry, Posting
from tests.faults.support.feed import entries
from tests.faults.support.world import KILLED, Picture, World
from tidegate.keys import partition_of
from tidegate.logs.base import LogRecord

ALWAYS = 1_000_000
POISON = {
    "bad-json": b'{"id": 1, "key": ',
    "wrong-type": b'{"id": "one", "key": "k1", "amount": 1, "at": 0}',
    "not-text": b"\xff\xfe\x00",
    "empty": b"",
    "tombstone": None,
}
Row = tuple[bytes | None, bytes | None, int | None]


def poisoned(seed: int, count: int, *, waiting: float = 0.0) -> list[Row]:
    """Good entries, with bad records among them: unreadable, without a key, or not in the partition of their key."""
    dice = random.Random(seed)
    rows: list[Row] = []
    for entry in entries(seed, count, waiting=waiting):
        key, value = entry.key.encode(), msgspec.json.encode(entry)
        rows.append((key, value, None))
        chance = dice.random()
        if chance < 0.1:
            rows.append((key, dice.choice([*POISON.values()]), None))
        elif chance < 0.15:
            rows.append((None, value, dice.randrange(PARTITIONS)))
        elif chance < 0.2:
            rows.append((key, value, (partition_of(key, PARTITIONS) + 1) % PARTITIONS))
    return rows


def is_bad(record: LogRecord, partition: int) -> bool:
    if record.key is None or partition_of(record.key, PARTITIONS) != partition:
        return True
    try:
        msgspec.json.decode(record.value or b"", type=Entry)
    except msgspec.MsgspecError:
        return True
    return False


def bad_records(picture: Picture) -> dict[tuple[int, int], LogRecord]:
    """By partition and offset."""
    return {
        (number, record.offset): record
        for number, part in enumerate(picture.partitions("entries"))
        for record in part
        if is_bad(record, number)
    }


def check_dead_letters(
    world: World,
    picture: Picture,
    topic: str,
    expected: dict[tuple[int, int], LogRecord],
    *,
    re_keyed: bool = False,
) -> None:
    """Each once, as it was, with where it came from and what was wrong."""
    found: list[tuple[int, int]] = []
    for part in picture.partitions(topic):
        for letter in part:
            headers = dict(letter.headers)
            origin = int(headers["origin-partition"]), int(headers["origin-offset"])
            found.append(origin)
            assert headers["origin-topic"] == picture.real["entries"].encode(), world.with_seed(f"{headers}")
            assert headers["error-type"], world.with_seed(f"{headers}")
            assert origin in expected, world.with_seed(f"{origin} is no bad record, but a dead letter: {headers}")
            same = letter.value == expected[origin].value and (re_keyed or letter.key == expected[origin].key)
            assert same, world.with_seed(f"the dead letter of {origin} is not what was read there")
    oracle.check_equal(world, "the dead letters", Counter(found), Counter(list(expected)))


def kill_now_and_then(world: World, seed: int, lives: int = 4) -> None:
    dice = random.Random(seed)
    points = [point for point in world.points if point.startswith(("handler.after", "commit.", "transaction."))]
    for _ in range(lives):
        life = world.live(f"{dice.choice(points)}:kill@{dice.randint(1, 12)}")
        assert life.wait() in (0, KILLED), world.with_seed(life.output)
    while world.struck.total() < 2:  # how often a worker commits depends on the machine, but it commits when it opens
        world.suffer("commit.appending:kill@1")


# -- records that cannot be read ------------------------------------------------------------------------------------


@pytest.mark.parametrize("waiting", [0.0, 0.3], ids=["direct", "waiting"])
def test_a_poison_record_is_dead_lettered_once(new_world: NewWorld, seed: int, waiting: float) -> None:
    world = new_world("dead_letters", TIDEGATE_TEST_TOIL="0.0002")
    world.append_raw("entries", poisoned(seed, 300, waiting=waiting))
    kill_now_and_then(world, seed)
    world.drain()
    picture = world.look()
    bad = bad_records(picture)
    assert len(bad) > 10
    oracle.check_ledger(world, picture)
    check_dead_letters(world, picture, "letters.ledger.dead-letters", bad)


def test_skipping_a_poison_record_skips_nothing_else(new_world: NewWorld, seed: int) -> None:
    world = new_world("skipping", TIDEGATE_TEST_TOIL="0.0002")
    world.append_raw("entries", poisoned(seed, 300))
    kill_now_and_then(world, seed)
    world.drain()
    oracle.check_ledger(world, world.look())


@pytest.mark.parametrize("kind", POISON)
def test_a_poison_record_stops_the_worker_and_stays_uncommitted(new_world: NewWorld, seed: int, kind: str) -> None:
    """Not a loop of crashes that eats the stream: every start says the same, and what came before is committed once."""
    world = new_world("stopping")
    world.append("entries", entries(seed, 100, keys=1))
    world.append_raw("entries", [(b"k0", POISON[kind], None)])
    world.append("entries", entries(seed + 1, 100, keys=1, first=101))
    for _ in range(3):
        life = world.fail(error="ServiceFailedError")
        assert "DecodeError" in life.output, world.with_seed(life.output)
    postings = [posting for own in world.topics("postings") for posting in own]
    assert len(postings) <= 100, world.with_seed("something after the bad record was handled")


def test_dead_letters_of_a_re_keyed_input_name_the_original_record(new_world: NewWorld, seed: int) -> None:
    world = new_world("shuffled_letters")
    good = list(entries(seed, 300, failing=0.1))
    rows: list[Row] = [(entry.key.encode(), msgspec.json.encode(entry), None) for entry in good]
    for kind in POISON.values():
        rows.insert(random.Random(seed).randrange(len(rows)), (b"k1", kind, None))
    world.append_raw("entries", rows)
    kill_now_and_then(world, seed)
    world.drain()
    picture = world.look()
    failed = {
        (number, record.offset): record
        for number, part in enumerate(picture.partitions("entries"))
        for record in part
        if is_bad(record, number) or msgspec.json.decode(record.value or b"", type=Entry).fails
    }
    check_dead_letters(world, picture, "shuffled-letters.owners.dead-letters", failed, re_keyed=True)
    done = {posting.id for posting in picture.values("postings", Posting)}
    oracle.check_equal(world, "what was handled", done, {entry.id for entry in good if not entry.fails})
    assert len(picture.values("postings", Posting)) == len(done), world.with_seed("something was handled twice")
    oracle.check_engine(world, picture)


# -- handlers that fail ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("waiting", [0.0, 0.4], ids=["direct", "waiting"])
def test_a_failed_handler_leaves_the_state_unchanged(new_world: NewWorld, seed: int, waiting: float) -> None:
    """It has written, emitted and waited before it fails, and nothing of that is seen."""
    world = new_world("dead_letters", TIDEGATE_TEST_TOIL="0.0002")
    sent = list(entries(seed, 300, waiting=waiting, failing=0.1, fails=ALWAYS))
    world.append("entries", sent)
    kill_now_and_then(world, seed)
    world.drain()
    picture = world.look()
    dead_lettered = frozenset(entry.id for entry in sent if entry.fails)
    oracle.check_ledger(world, picture, dead_lettered=dead_lettered)
    failed = {
        (number, record.offset): record
        for number, part in enumerate(picture.partitions("entries"))
        for record in part
        if msgspec.json.decode(record.value or b"", type=Entry).id in dead_lettered
    }
    check_dead_letters(world, picture, "letters.ledger.dead-letters", failed)


@pytest.mark.parametrize("waiting", [0.0, 0.4], ids=["direct", "waiting"])
def test_a_handler_is_retried_until_it_succeeds_or_retries_are_exhausted(
    new_world: NewWorld, seed: int, waiting: float
) -> None:
    world = new_world("retrying", TIDEGATE_TEST_TOIL="0.0002")
    sent = [*entries(seed, 200, waiting=waiting, failing=0.15, fails=RETRIES)]
    sent += entries(seed + 1, 100, waiting=waiting, failing=0.15, fails=ALWAYS, first=201)
    world.append("entries", sent)
    kill_now_and_then(world, seed)
    world.drain()
    picture = world.look()
    dead_lettered = frozenset(entry.id for entry in sent if entry.fails > RETRIES)
    oracle.check_ledger(world, picture, dead_lettered=dead_lettered)
    letters = [dict(letter.headers) for part in picture.partitions("retrying.ledger.dead-letters") for letter in part]
    assert len(letters) == len(dead_lettered), world.with_seed(
        f"{len(letters)} dead letters instead of {len(dead_lettered)}"
    )
    assert {headers["attempts"] for headers in letters} <= {str(RETRIES + 1).encode()}


@pytest.mark.parametrize("waiting", [0.0, 1.0], ids=["direct", "waiting"])
def test_a_record_that_stopped_the_worker_is_handled_by_the_fixed_handler(
    new_world: NewWorld, seed: int, waiting: float
) -> None:
    """It fails in mid-batch, with commits under way: neither it nor what came before it is lost or done twice."""
    world = new_world("stopping", TIDEGATE_TEST_TOIL="0.0002")
    world.append("entries", entries(seed, 400, waiting=waiting, longest=0.005, failing=0.02, fails=ALWAYS))
    for _ in range(4):
        world.fail(error="is told to fail")
    kill = world.live("commit.appended:kill@4")
    assert kill.wait() in (1, KILLED), world.with_seed(kill.output)
    world.drain(TIDEGATE_TEST_MENDED="1")
    oracle.check_ledger(world, world.look())


def test_a_hanging_handler_is_cancelled_and_other_keys_continue(new_world: NewWorld, seed: int) -> None:
    world = new_world("hurried")
    stuck = {50, 120, 121}
    sent = [msgspec.structs.replace(entry, wait=3600.0 if entry.id in stuck else 0.0) for entry in entries(seed, 200)]
    world.append("entries", sent)
    world.drain()
    oracle.check_ledger(world, world.look(), dead_lettered=frozenset(stuck))


# -- results that the log refuses -----------------------------------------------------------------------------------


@pytest.mark.parametrize("waiting", [0.0, 1.0], ids=["direct", "waiting"])
def test_a_record_with_an_oversized_result_is_dead_lettered(new_world: NewWorld, seed: int, waiting: float) -> None:
    """The log would refuse the whole transaction: it is the record's fault, not that of all the others in it."""
    world = new_world("dead_letters")
    sent = list(entries(seed, 200, waiting=waiting, longest=0.005))
    large = {20, 77, 150}
    sent = [msgspec.structs.replace(e, size=9 << 20 if e.id in large else 0) for e in sent]
    world.append("entries", sent)
    world.drain()
    picture = world.look()
    oracle.check_ledger(world, picture, dead_lettered=frozenset(large))
    letters = [dict(letter.headers) for part in picture.partitions("letters.ledger.dead-letters") for letter in part]
    assert [headers["error-type"] for headers in letters] == [b"RecordTooLargeError"] * 3, world.with_seed(f"{letters}")
