"""Who owns a task is asked of the group when it may have changed, and not otherwise."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from tidegate.errors import LogError, NotReadyError
from tidegate.logs.base import TopicPartition
from tidegate.logs.membership import LocalTasks
from tidegate.logs.observer import Worker
from tidegate.serving.task_directory import TaskDirectory

TASK, OTHER = TopicPartition("app.s.changelog", 0), TopicPartition("app.s.changelog", 1)


class Group:
    """Knows its members, and counts how often it is asked."""

    name, session_valid = "me", True
    owned: frozenset[TopicPartition] = frozenset()

    def __init__(self) -> None:
        self.generation, self.asked, self.away = 1, 0, False
        self.members = [Worker(name="a", tasks=frozenset({TASK}), address="http://a")]

    async def workers(self) -> list[Worker]:
        self.asked += 1
        if self.away:
            raise LogError("the coordinator is away")
        return self.members

    async def join(self, tasks: Iterable[TopicPartition], held: LocalTasks) -> None: ...

    async def changed(self, generation: int) -> None: ...

    async def confirm(self) -> bool:
        return True

    async def leave(self) -> None: ...


async def test_it_is_asked_once_for_each_assignment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidegate.serving.task_directory._REFRESH_INTERVAL", 0.0)
    group = Group()
    directory = TaskDirectory(group)
    for _ in range(3):
        assert (await directory.owner(TASK)).address == "http://a"
    assert group.asked == 1
    group.generation, group.members = 2, [Worker(name="b", tasks=frozenset({TASK}), address="http://b")]
    assert (await directory.owner(TASK)).address == "http://b"
    directory.invalidate()
    await directory.owner(TASK)
    assert group.asked == 3


async def test_without_an_owner_clients_are_asked_to_retry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidegate.serving.task_directory._REFRESH_INTERVAL", 0.0)
    group = Group()
    directory = TaskDirectory(group)
    with pytest.raises(NotReadyError, match="rebalancing"):
        await directory.owner(OTHER)
    group.members.append(Worker(name="c", tasks=frozenset({OTHER})))  # it has no API
    with pytest.raises(NotReadyError):
        await directory.owner(OTHER)
    group.away = True
    with pytest.raises(NotReadyError, match="coordinator is away"):
        await directory.owner(OTHER)
