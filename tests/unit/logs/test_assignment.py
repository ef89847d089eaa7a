"""The assignment of tasks is balanced, complete, and sticky."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tidegate.logs.assignment import Member, assign_tasks
from tidegate.logs.base import TopicPartition

TOPICS = ("app.a.changelog", "app.b.changelog", "app.c.changelog")


def tasks_of(counts: list[int]) -> list[TopicPartition]:
    return [TopicPartition(topic, n) for topic, count in zip(TOPICS, counts, strict=False) for n in range(count)]


counts = st.lists(st.integers(0, 12), min_size=1, max_size=3)


def fresh(names: list[str]) -> dict[str, Member]:
    return {name: Member(topics=frozenset(TOPICS)) for name in names}


def owning(name: str, given: dict[str, set[TopicPartition]], generation: int = 1) -> Member:
    return Member(topics=frozenset(TOPICS), owned=frozenset(given[name]), generation=generation)


@given(counts, st.integers(1, 6), st.data())
def test_every_task_has_one_owner_and_the_assignment_is_balanced(
    counts: list[int], size: int, data: st.DataObject
) -> None:
    tasks = tasks_of(counts)
    members = {
        str(n): Member(
            topics=frozenset(TOPICS),
            owned=frozenset(data.draw(st.sets(st.sampled_from(tasks)))) if tasks else frozenset(),
            generation=data.draw(st.integers(0, 3)),
            held=frozenset(data.draw(st.sets(st.sampled_from(tasks)))) if tasks else frozenset(),
        )
        for n in range(size)
    }

    given = assign_tasks(tasks, members)

    assert sorted(task for share in given.values() for task in share) == sorted(tasks)
    assert max(map(len, given.values())) - min(map(len, given.values())) <= 1


@given(counts, st.integers(1, 6))
def test_an_unchanged_group_moves_no_tasks(counts: list[int], size: int) -> None:
    tasks = tasks_of(counts)
    names = [str(n) for n in range(size)]
    before = assign_tasks(tasks, fresh(names))

    assert assign_tasks(tasks, {name: owning(name, before) for name in names}) == before


@given(counts, st.integers(2, 6))
def test_when_a_worker_leaves_only_its_tasks_move(counts: list[int], size: int) -> None:
    tasks = tasks_of(counts)
    names = [str(n) for n in range(size)]
    before = assign_tasks(tasks, fresh(names))

    after = assign_tasks(tasks, {name: owning(name, before) for name in names[1:]})

    assert all(before[name] <= after[name] for name in names[1:])


@given(counts, st.integers(1, 5))
def test_a_new_worker_takes_its_share_and_no_other_tasks_move(counts: list[int], size: int) -> None:
    tasks = tasks_of(counts)
    names = [str(n) for n in range(size)]
    before = assign_tasks(tasks, fresh(names))

    after = assign_tasks(tasks, {**{name: owning(name, before) for name in names}, "new": fresh(["new"])["new"]})

    assert all(after[name] <= before[name] for name in names)


@given(st.integers(1, 12), st.integers(1, 4))
def test_the_tasks_of_each_service_are_spread(count: int, size: int) -> None:
    given = assign_tasks(tasks_of([count, count]), fresh([str(n) for n in range(size)]))

    for topic in TOPICS[:2]:
        shares = [sum(task.topic == topic for task in share) for share in given.values()]
        assert max(shares) - min(shares) <= 1


def test_the_newer_of_two_claims_counts() -> None:
    tasks = tasks_of([2])
    everything = {"old": set(tasks), "new": {tasks[0]}}
    members = {"old": owning("old", everything, generation=3), "new": owning("new", everything, generation=4)}

    assert assign_tasks(tasks, members) == {"old": {tasks[1]}, "new": {tasks[0]}}


def test_a_free_task_goes_where_its_state_is() -> None:
    tasks = tasks_of([4])
    members = fresh(["a", "b"]) | {"b": Member(topics=frozenset(TOPICS), held=frozenset(tasks[:2]))}

    assert assign_tasks(tasks, members)["b"] == set(tasks[:2])


def test_a_worker_gets_only_tasks_of_services_that_it_knows() -> None:
    tasks = tasks_of([2, 2])
    members = {"old": Member(topics=frozenset(TOPICS[:1])), "new": Member(topics=frozenset(TOPICS[:2]))}

    given = assign_tasks(tasks, members)

    assert {task.topic for task in given["old"]} <= {TOPICS[0]}
    assert sorted(given["old"] | given["new"]) == tasks
