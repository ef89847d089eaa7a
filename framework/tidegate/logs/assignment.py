"""How tasks are divided among workers: evenly, and with as little moving as that allows.

1. Everybody gets the same number of tasks, give or take one. Who has more keeps more.
2. A task stays where it runs, as far as its owner's share allows; if two claim it, the newer claim counts.
3. The others go to workers that have their state on disk, then to those with the fewest tasks of that service, then to
   those with the fewest tasks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from tidegate.logs.base import TopicPartition

__all__ = ("Member", "divide")


@dataclass(frozen=True, kw_only=True)
class Member:
    """What a worker says about itself when it joins."""

    topics: frozenset[str]
    """The services that it knows: code may differ while a new version is rolled out."""
    owned: frozenset[TopicPartition] = frozenset()
    generation: int = 0
    """Since when it owns them."""
    held: frozenset[TopicPartition] = frozenset()
    """What it has on disk."""


def divide(tasks: Iterable[TopicPartition], members: Mapping[str, Member]) -> dict[str, set[TopicPartition]]:
    """Every task goes to exactly one of the members that know it. Deterministic."""
    ordered = sorted(tasks, key=lambda task: (task.partition, task.topic))
    claims = _claims(ordered, members)
    shares = _shares(len(ordered), claims)
    given = {name: _keep(claims[name], shares[name]) for name in members}
    taken = set().union(*given.values())
    for task in ordered:
        able = [name for name, member in members.items() if task.topic in member.topics]
        if task not in taken and able:
            given[_best(task, able, members, given, shares)].add(task)
    return given


def _claims(tasks: Iterable[TopicPartition], members: Mapping[str, Member]) -> dict[str, set[TopicPartition]]:
    claims: dict[str, set[TopicPartition]] = {name: set() for name in members}
    for task in tasks:
        owners = [name for name, member in members.items() if task in member.owned and task.topic in member.topics]
        if owners:
            claims[max(owners, key=lambda name: (members[name].generation, name))].add(task)
    return claims


def _shares(tasks: int, claims: Mapping[str, set[TopicPartition]]) -> dict[str, int]:
    least, more = divmod(tasks, len(claims))
    by_claims = sorted(claims, key=lambda name: (-len(claims[name]), name))
    return {name: least + (place < more) for place, name in enumerate(by_claims)}


def _keep(claimed: set[TopicPartition], share: int) -> set[TopicPartition]:
    """What stays: when there is too much, the services with the most tasks give first."""
    kept = set(claimed)
    while len(kept) > share:
        counts = Counter(task.topic for task in kept)
        kept.remove(max(kept, key=lambda task: (counts[task.topic], task)))
    return kept


def _best(
    task: TopicPartition,
    able: list[str],
    members: Mapping[str, Member],
    given: Mapping[str, set[TopicPartition]],
    shares: Mapping[str, int],
) -> str:
    def cost(name: str) -> tuple[bool, bool, int, int, str]:
        tasks = given[name]
        same = sum(other.topic == task.topic for other in tasks)
        return len(tasks) >= shares[name], task not in members[name].held, same, len(tasks), name

    return min(able, key=cost)
