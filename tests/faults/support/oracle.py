"""The expected results: plain folds over the input topics, and checks that everything else agrees with them.

The truth is the log of the inputs, not what a test meant to send: a sender that is killed does not know whether its
last record is there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any

import msgspec

from examples.tinder_match.events import Like, Match, Notice
from examples.tinder_match.fold import Inbox, compare, expected
from tests.faults.support.apps import FADES, GAP, KEPT, LEAD, Alarm, Balance, Entry, Hop, Posting, Session, Tally, bulk
from tests.faults.support.world import Picture, World
from tidegate.engine.formats.commit_marker import CommitMarker, decode_marker
from tidegate.keys import partition_of
from tidegate.logs.base import LogRecord, TopicPartition
from tidegate.state.layout import (
    KEYED,
    MARKER,
    QUEUE,
    TIMER,
    operator_key,
    parse_keyed,
    parse_queue,
    parse_timer,
    unpack_due,
)
from tidegate.state.map_keys import map_keys

__all__ = (
    "check_alarms",
    "check_chained",
    "check_combined",
    "check_cycle",
    "check_eager",
    "check_engine",
    "check_equal",
    "check_fading",
    "check_hoard",
    "check_ledger",
    "check_sessions",
    "check_shuffled",
    "check_tallies",
    "check_tinder",
    "keyed_state",
    "tinder_differences",
)


def check_equal(world: World, what: str, actual: Any, expected: Any) -> None:
    """Fail with the first difference, and the seed."""
    if actual != expected:
        raise AssertionError(world.with_seed(f"{what} is wrong: {_difference(actual, expected)}"))


def _difference(actual: Any, expected: Any) -> str:
    if isinstance(actual, Mapping) and isinstance(expected, Mapping):
        for key in sorted({*actual, *expected}, key=repr):
            if actual.get(key) != expected.get(key):
                return f"at {key!r}: {_difference(actual.get(key), expected.get(key))}"
    if isinstance(actual, Sequence) and isinstance(expected, Sequence) and not isinstance(actual, str | bytes):
        for index, (one, other) in enumerate(zip(actual, expected, strict=False)):
            if one != other:
                return f"item {index} is {one!r}, not {other!r} ({len(actual)} items, {len(expected)} expected)"
        return f"{len(actual)} items instead of {len(expected)}; from there: {actual[len(expected) :][:3]!r}"
    return f"{actual!r} instead of {expected!r}"


# -- what holds for every app ---------------------------------------------------------------------------------------


def check_engine(world: World, picture: Picture) -> None:
    """After a drain: a changelog, folded, is the local store; all input is read to its end, nothing is unfinished, no
    transaction is left open. Stores of former owners lag behind, and are what the changelog was at their position."""
    check_equal(world, "where transactions are left open", list(picture.undecided), [])
    for task in picture.plan.tasks:
        changelog = picture.topics[task.changelog]
        folded = fold_changelog(changelog)
        store = picture.stores[task.id]
        check_equal(world, f"the store of {task.id} against its changelog", _without_queue(store), folded)
        _check_queue(world, task.id, store)
        _check_marker(world, picture, task.id, decode_marker(folded[MARKER]), [source for _, source in task.sources])
        for copy in picture.left[task.id]:
            at = copy.position.offset if copy.position else 0
            was = fold_changelog([record for record in changelog if record.offset < at])
            check_equal(world, f"what a former owner of {task.id} left, at {at}", _without_queue(copy.content), was)


def _without_queue(store: Mapping[bytes, bytes]) -> dict[bytes, bytes]:
    """What follows from the rest is not in the changelog."""
    return {key: value for key, value in store.items() if key[:1] != QUEUE}


def fold_changelog(records: Sequence[LogRecord]) -> dict[bytes, bytes]:
    state: dict[bytes, bytes] = {}
    for record in records:
        if record.value is None:
            state.pop(record.key or b"", None)
        else:
            state[record.key or b""] = record.value
    return state


def _check_queue(world: World, task: str, store: Mapping[bytes, bytes]) -> None:
    """Every timer in the index is in the queue: otherwise it would never fire."""
    queued = {parse_queue(key) for key in store if key[:1] == QUEUE}
    for key, value in store.items():
        if key[:1] == TIMER:
            domain, at = unpack_due(value)
            _, owner, name = parse_timer(key)
            assert (domain, at, owner, name) in queued, world.with_seed(
                f"timer {name} of {owner!r} in {task} is not queued"
            )


def _check_marker(
    world: World, picture: Picture, task: str, marker: CommitMarker, sources: Sequence[TopicPartition]
) -> None:
    positions = {name: mark.position for name, mark in marker.inputs.items()}
    for source in sources:
        at, end = positions.pop(f"{picture.real[source.topic]}:{source.partition}"), picture.ends[source]
        last = max((record.offset for record in picture.topics[source]), default=-1)
        assert last < at <= end, world.with_seed(f"{task} is at {at} in {source}, whose last record is {last} of {end}")
    check_equal(world, f"other positions of {task}", positions, {})
    unfinished = {name: mark.unfinished for name, mark in marker.inputs.items() if mark.unfinished}
    check_equal(world, f"what is unfinished in {task}", unfinished, {})


def keyed_state(picture: Picture, service: str) -> dict[str, dict[str, dict[bytes, Any]]]:
    """By state, key and subkey, from the stores of all tasks of a service."""
    found: dict[str, dict[str, dict[bytes, Any]]] = {}
    for task, store in picture.stores.items():
        if task.rpartition(".")[0] != service:
            continue
        for key, value in store.items():
            if key[:1] == KEYED:
                name, _, owner, sub = parse_keyed(key)
                found.setdefault(name, {}).setdefault(owner.decode(), {})[sub] = msgspec.json.decode(value)
    return found


def single(state: Mapping[str, Mapping[bytes, Any]]) -> dict[str, Any]:
    """A state with one value per key."""
    return {key: entries[b""] for key, entries in state.items()}


def entries_of(picture: Picture, topic: str = "entries") -> dict[str, list[Entry]]:
    """What can be read of the input, by key."""
    found: dict[str, list[Entry]] = {}
    parts = picture.partitions(topic)
    for number, part in enumerate(parts):
        for record in part:
            try:
                entry = msgspec.json.decode(record.value or b"", type=Entry)
            except msgspec.MsgspecError:
                continue
            if record.key == entry.key.encode() and partition_of(record.key, len(parts)) == number:
                found.setdefault(entry.key, []).append(entry)
    return found


def timers_left(picture: Picture) -> list[bytes]:
    return [key for store in picture.stores.values() for key in store if key[:1] == TIMER]


# -- the ledger -----------------------------------------------------------------------------------------------------


def check_ledger(world: World, picture: Picture, *, dead_lettered: frozenset[int] = frozenset()) -> None:
    """`dead_lettered`: entries that the error policy does not handle."""
    check_engine(world, picture)
    postings: dict[str, list[Posting]] = {}
    state: dict[str, dict[str, dict[bytes, Any]]] = {}
    for key, entries in entries_of(picture).items():
        done = [entry for entry in entries if entry.id not in dead_lettered]
        if done:
            postings[key] = _post(done)
            _keep(state, key, done)
    check_equal(world, "what the ledger emitted", picture.by_key("postings", Posting), postings)
    check_equal(world, "the ledger's state", keyed_state(picture, "ledger"), state)


def _post(entries: Sequence[Entry]) -> list[Posting]:
    postings, total = [], 0
    for count, entry in enumerate(entries, 1):
        total += entry.amount
        postings.append(Posting(entry.id, entry.key, count, total, padding="x" * entry.size))
    return postings


def _keep(state: dict[str, dict[str, dict[bytes, Any]]], key: str, entries: Sequence[Entry]) -> None:
    """What the ledger must remember of a key's entries."""
    last: list[int] = []
    for entry in entries:
        last = [*last[-(KEPT - 1) :], entry.id + 1]
    count, first = len(entries), max(0, len(entries) - KEPT)
    balance = {"count": count, "total": sum(entry.amount for entry in entries)}
    amounts = Counter(map_keys(int).encode(entry.amount) for entry in entries)
    items = {index.to_bytes(8, "big"): entries[index].id for index in range(first, count)}
    for name, value in (
        ("balance", {b"": balance}),
        ("last", {b"": last}),
        ("by_amount", dict(amounts)),
        ("history", items),
    ):
        state.setdefault(name, {})[key] = value
    state.setdefault("history.bounds", {})[key] = {b"": [first, count]}


def check_eager(world: World, picture: Picture) -> None:
    """State is exact; what was emitted may come again, the same, but nothing is missing."""
    check_engine(world, picture)
    state: dict[str, dict[str, dict[bytes, Any]]] = {}
    emitted = picture.by_key("postings", Posting)
    for key, entries in entries_of(picture).items():
        _keep(state, key, entries)
        check_equal(
            world, f"what the ledger emitted for {key}, each once", list(dict.fromkeys(emitted[key])), _post(entries)
        )
    check_equal(world, "the ledger's state", keyed_state(picture, "ledger"), state)


# -- other state ----------------------------------------------------------------------------------------------------


def check_tallies(world: World, picture: Picture) -> None:
    check_engine(world, picture)
    expected, highest, mean = {}, {}, {}
    for key, entries in entries_of(picture).items():
        counts, totals = range(1, len(entries) + 1), list(accumulate(entry.amount for entry in entries))
        most = list(accumulate((entry.id for entry in entries), max))
        expected[key] = [
            Tally(entry.id, key, high, total / count)
            for entry, high, total, count in zip(entries, most, totals, counts, strict=True)
        ]
        highest[key], mean[key] = most[-1], [len(entries), totals[-1]]
    check_equal(world, "the tallies", picture.by_key("tallied", Tally), expected)
    check_equal(world, "the highest", single(keyed_state(picture, "tallies")["highest"]), highest)
    check_equal(world, "the means", single(keyed_state(picture, "tallies")["mean"]), mean)
    for number, part in enumerate(picture.partitions("entries")):
        ids = sorted(msgspec.json.decode(record.value or b"", type=Entry).id for record in part)
        handled = msgspec.json.decode(picture.stores[f"tallies.{number}"][operator_key("handled", 0)], type=list[int])
        check_equal(world, f"what task {number} remembers", sorted(handled), ids)


def check_hoard(world: World, picture: Picture) -> None:
    check_engine(world, picture)
    entries = entries_of(picture)
    emitted = {key: [posting.id for posting in own] for key, own in picture.by_key("postings", Posting).items()}
    check_equal(
        world, "what the hoard emitted", emitted, {key: [entry.id for entry in own] for key, own in entries.items()}
    )
    kept = {key: bulk(own[-1]) for key, own in entries.items()}
    check_equal(world, "what is in the hoard", single(keyed_state(picture, "hoard")["kept"]), kept)


def check_fading(world: World, picture: Picture) -> None:
    """Per partition, to the letter: a value counts as forgotten by the time of the record, or of the watermark."""
    check_engine(world, picture)
    expected: dict[str, list[Posting]] = {}
    for part in picture.partitions("entries"):
        known: dict[str, tuple[int, float]] = {}
        watermark = highest = -float("inf")
        for record in part:
            entry = msgspec.json.decode(record.value or b"", type=Entry)
            now = max(entry.at, watermark)
            count, expires = known.get(entry.key, (0, -float("inf")))
            count = count + 1 if expires > now else 1
            known[entry.key] = count, now + FADES
            expected.setdefault(entry.key, []).append(Posting(entry.id, entry.key, count, 0))
            highest = max(highest, entry.at)
            watermark = highest - GAP // 5 - 1
    check_equal(world, "the counts", picture.by_key("postings", Posting), expected)


# -- timers ---------------------------------------------------------------------------------------------------------


def check_alarms(world: World, picture: Picture) -> None:
    """Each record's timer has fired, once. In which order depends on the clock and on who waited."""
    check_engine(world, picture)
    _check_rung(world, picture, picture.by_key("rung", Alarm), entries_of(picture), "clock")


def _check_rung(
    world: World, picture: Picture, rung: dict[str, list[Alarm]], entries: dict[str, list[Entry]], service: str
) -> None:
    due = {key: sorted(str(entry.id) for entry in own) for key, own in entries.items()}
    check_equal(world, "which timers fired", {key: sorted(alarm.id for alarm in own) for key, own in rung.items()}, due)
    numbers = {key: [alarm.number for alarm in own] for key, own in rung.items()}
    check_equal(
        world, "how they were counted", numbers, {key: list(range(1, len(own) + 1)) for key, own in due.items()}
    )
    fired = single(keyed_state(picture, service).get("fired", {}))
    check_equal(world, "the count in the state", fired, {key: len(own) for key, own in due.items()})
    check_equal(world, "the timers that are left", timers_left(picture), [])


def check_sessions(world: World, picture: Picture) -> None:
    """Per partition, to the letter: when the watermark passes a timer is decided by the records alone."""
    check_engine(world, picture)
    expected: dict[str, list[Session]] = {}
    for part in picture.partitions("entries"):
        for session in _fold_sessions([msgspec.json.decode(record.value or b"", type=Entry) for record in part]):
            expected.setdefault(session.key, []).append(session)
    check_equal(world, "the sessions", picture.by_key("closed", Session), expected)
    check_equal(world, "the state of open sessions", keyed_state(picture, "visits"), {})
    check_equal(world, "the timers that are left", timers_left(picture), [])


def _fold_sessions(entries: Sequence[Entry]) -> list[Session]:
    open_: dict[str, tuple[int, ...]] = {}
    due: dict[str, int] = {}
    closed: list[Session] = []

    def pass_time(watermark: float) -> None:
        for at, key in sorted((at, key) for key, at in due.items() if at <= watermark):
            closed.append(Session(key, open_.pop(key), at))
            del due[key]

    watermark = highest = -float("inf")
    for entry in entries:
        open_[entry.key] = (*open_.get(entry.key, ()), -entry.id if entry.at <= watermark else entry.id)
        due[entry.key] = entry.at + GAP
        highest = max(highest, entry.at)
        watermark = highest - GAP // 5 - 1
        pass_time(watermark)
    pass_time(float("inf"))
    return closed


# -- services behind services ---------------------------------------------------------------------------------------


def check_shuffled(world: World, picture: Picture) -> None:
    """Each entry was handled once by its owner, in the order of its partition; the rest follows from the order
    between partitions, which the outputs show. Records of the internal topic that all readers read may be trimmed."""
    check_engine(world, picture)
    sent = {entry.id: entry for entry in picture.values("entries", Entry)}
    left = Counter(entry.id for entry in picture.values("shuffled.owners.entries.by-key", Entry))
    check_equal(world, "what is not in the internal topic once, of what is there", [*(left - Counter(sent.keys()))], [])
    emitted = picture.by_key("postings", Posting)
    handled = {owner: [sent[posting.id] for posting in own] for owner, own in emitted.items()}
    for part in picture.partitions("entries"):
        read = [msgspec.json.decode(record.value or b"", type=Entry) for record in part]
        ids = {entry.id for entry in read}
        for owner in {entry.owner for entry in read} | handled.keys():
            actual = [entry for entry in handled.get(owner, []) if entry.id in ids]
            check_equal(
                world, f"what was re-keyed to {owner}", actual, [entry for entry in read if entry.owner == owner]
            )
    expected = {
        owner: [Posting(posting.id, owner, posting.count, posting.total) for posting in _post(own)]
        for owner, own in handled.items()
    }
    check_equal(world, "what the owners' service emitted", emitted, expected)
    balances = {owner: {"count": own[-1].count, "total": own[-1].total} for owner, own in expected.items()}
    check_equal(world, "the owners' state", single(keyed_state(picture, "owners")["balance"]), balances)


def check_combined(world: World, picture: Picture) -> None:
    """Each entry that the filter lets through is in exactly one combined record, and each of those was handled once."""
    check_engine(world, picture)
    sent = [entry for entry in picture.values("entries", Entry) if entry.amount % 5]
    counts, totals = Counter(entry.owner for entry in sent), Counter[str]()
    for entry in sent:
        totals[entry.owner] += entry.amount
    balances = {owner: {"count": count, "total": totals[owner]} for owner, count in counts.items()}
    check_equal(world, "the owners' state", single(keyed_state(picture, "owners")["balance"]), balances)
    for owner, postings in picture.by_key("postings", Posting).items():
        running = accumulate(posting.id for posting in postings)
        check_equal(world, f"what {owner} counted", [posting.count for posting in postings], [*running])
    postings = [posting for own in picture.by_key("postings", Posting).values() for posting in own]
    assert len(postings) < len(sent), world.with_seed("nothing was combined")


def check_chained(world: World, picture: Picture) -> None:
    """Nothing is late for the second service, and no timer fires before an earlier record is handled."""
    check_engine(world, picture)
    entries = entries_of(picture)
    between = picture.by_key("between", Entry)
    sent = sorted((entry for own in entries.values() for entry in own), key=lambda entry: entry.id)
    passed = sorted((entry for own in between.values() for entry in own), key=lambda entry: entry.id)
    check_equal(world, "what the first service passed on", passed, sent)
    seen = [posting for own in picture.by_key("postings", Posting).values() for posting in own]
    check_equal(world, "what the second service has seen", sorted(p.id for p in seen), [entry.id for entry in sent])
    check_equal(world, "what was late", [posting for posting in seen if posting.late], [])
    balances = {key: vars_of(Balance(len(own), sum(e.amount for e in own))) for key, own in entries.items()}
    check_equal(world, "the first service's state", single(keyed_state(picture, "first")["balance"]), balances)
    _check_rung(world, picture, picture.by_key("rung", Alarm), between, "second")
    for key, alarms in picture.by_key("rung", Alarm).items():
        due = {str(entry.id): entry.at + LEAD for entry in between[key]}
        times = [due[alarm.id] for alarm in alarms]
        check_equal(world, f"the order of time for {key}", times, sorted(times))


def vars_of(struct: msgspec.Struct) -> Any:
    return msgspec.to_builtins(struct)


def check_cycle(world: World, picture: Picture) -> None:
    """Each entry goes round as often as it says, and arrives once."""
    check_engine(world, picture)
    entries = entries_of(picture)
    arrived = {key: sorted(posting.id for posting in own) for key, own in picture.by_key("postings", Posting).items()}
    check_equal(
        world, "what arrived", arrived, {key: sorted(entry.id for entry in own) for key, own in entries.items()}
    )
    hops = {key: sum(entry.amount for entry in own) for key, own in entries.items()}
    expected = sorted((e.id, left) for own in entries.values() for e in own for left in range(e.amount))
    for topic in ("round", "back"):
        check_equal(
            world, f"the hops in {topic}", sorted((hop.id, hop.left) for hop in picture.values(topic, Hop)), expected
        )
    home = {key: count for key, count in hops.items() if count}
    check_equal(world, "the visits at home", single(keyed_state(picture, "home").get("visits", {})), home)
    out = {key: hops[key] + len(own) for key, own in entries.items()}
    check_equal(world, "the visits out", single(keyed_state(picture, "out")["visits"]), out)


# -- the example ----------------------------------------------------------------------------------------------------


def check_tinder(world: World, picture: Picture) -> None:
    check_engine(world, picture)
    found = tinder_differences(picture)
    assert not found, world.with_seed("\n".join(found[:10]))


def tinder_differences(picture: Picture) -> list[str]:
    """Between the example's own fold of the likes and what its services made of them."""
    matches, notices = picture.values("matches", Match), picture.values("notices", Notice)
    return compare(expected(picture.values("likes", Like)), matches, notices, _inboxes(picture))


def _inboxes(picture: Picture) -> dict[str, Inbox]:
    """What the state of the service `inbox` says."""
    state = keyed_state(picture, "inbox")
    found = {
        person: Inbox({other.decode(): at for other, at in entries.items()})
        for person, entries in state.get("matches", {}).items()
    }
    for person, entries in state.get("unread", {}).items():
        found[person].unread = entries[b""]
    return found
