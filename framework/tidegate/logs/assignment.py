"""The assignment of tasks to workers: balanced and sticky.

1. Every worker gets the same number of tasks, plus or minus one. Workers that own more tasks now get the extra ones.
2. A task stays with its owner, as far as the owner's share allows; of two claims, the newer generation wins.
3. Each remaining task goes to a worker that has its state on disk, then to the one with the fewest tasks of the same
   service, then to the one with the fewest tasks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from tidegate.logs.base import TopicPartition

__all__ = ("Member", "assign_tasks")


@dataclass(frozen=True, kw_only=True)
class Member:
    """A worker of the group, as its metadata describes it."""

    topics: frozenset[str]
    """The changelogs of the services in its code, which may differ between workers during a rolling upgrade."""
    owned: frozenset[TopicPartition] = frozenset()
    generation: int = 0
    """The generation in which it got them."""
    held: frozenset[TopicPartition] = frozenset()
    """The tasks whose state it has on disk."""


def assign_tasks(tasks: Iterable[TopicPartition], members: Mapping[str, Member]) -> dict[str, set[TopicPartition]]:
    """Assigns every task to exactly one of the members whose code has its service. Deterministic."""
    ordered = sorted(tasks, key=lambda task: (task.partition, task.topic))
    claims = _claims(ordered, members)
    shares = _shares(len(ordered), claims)
    assignment = {name: _keep(claims[name], shares[name]) for name in members}
    assigned = set().union(*assignment.values())
    for task in ordered:
        candidates = [name for name, member in members.items() if task.topic in member.topics]
        if task not in assigned and candidates:
            assignment[_best(task, candidates, members, assignment, shares)].add(task)
    return assignment


def _claims(tasks: Iterable[TopicPartition], members: Mapping[str, Member]) -> dict[str, set[TopicPartition]]:
    claims: dict[str, set[TopicPartition]] = {name: set() for name in members}
    for task in tasks:
        owners = [name for name, member in members.items() if task in member.owned and task.topic in member.topics]
        if owners:
            claims[max(owners, key=lambda name: (members[name].generation, name))].add(task)
    return claims


def _shares(tasks: int, claims: Mapping[str, set[TopicPartition]]) -> dict[str, int]:
    base, extra = divmod(tasks, len(claims))
    by_claims = sorted(claims, key=lambda name: (-len(claims[name]), name))
    return {name: base + (rank < extra) for rank, name in enumerate(by_claims)}


def _keep(claimed: set[TopicPartition], share: int) -> set[TopicPartition]:
    """The tasks that stay with their owner. Over the share, it gives up tasks of the service with the most of them."""
    kept = set(claimed)
    while len(kept) > share:
        counts = Counter(task.topic for task in kept)
        kept.remove(max(kept, key=lambda task: (counts[task.topic], task)))
    return kept


def _best(
    task: TopicPartition,
    candidates: list[str],
    members: Mapping[str, Member],
    assignment: Mapping[str, set[TopicPartition]],
    shares: Mapping[str, int],
) -> str:
    def cost(name: str) -> tuple[bool, bool, int, int, str]:
        tasks = assignment[name]
        same = sum(other.topic == task.topic for other in tasks)
        return len(tasks) >= shares[name], task not in members[name].held, same, len(tasks), name

    return min(candidates, key=cost)
