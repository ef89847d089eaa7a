"""send, tail, topics, services, state and reset: beside a running worker, and without one."""

from __future__ import annotations

import json
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from tests.integration.commands import Project, lines


def send(project: Project, topic: str, *values: Any) -> None:
    project.run("send", "hello.py", topic, stdin=lines(values))


def counted(project: Project, count: int) -> list[Any]:
    """Wait until so many counts are committed."""
    return project.json("tail", "hello.py", "counts", "--from-beginning", "--count", str(count))


# -------------------------------------------------------------------------------------------------------------- send


def test_without_a_worker_send_creates_the_topics_and_the_worker_reads_the_records(project: Project) -> None:
    send(project, "greetings", {"name": "ann"}, {"name": "bob"})

    rows = {row["name"]: row for row in json.loads(project.run("topics", "hello.py", "--json").stdout)}
    assert (rows["greetings"]["records"], rows["counts"]["records"]) == (2, 0)
    with project.worker():
        assert {line["key"] for line in counted(project, 2)} == {"ann", "bob"}


def test_a_bad_line_stops_a_send_after_all_lines_before_it(project: Project) -> None:
    bad = '{"name": "ann"}\n{"name": "bob"}\n{"name": 7}\n{"name": "cleo"}\n'

    done = project.run("send", "hello.py", "greetings", stdin=bad, code=1)

    assert "Sent 2 records to greetings before the error." in done.stderr
    assert "Error: line 3: 11 byte(s) that are not a valid Greeting: Expected `str`, got `int`" in done.stderr
    assert '{"name": 7}' in done.stderr
    assert "tail -n +3" in done.stderr
    found = project.json("tail", "hello.py", "greetings", "--until-end")
    assert sorted(line["key"] for line in found) == ["ann", "bob"]


def test_bad_lines_can_be_left_out_and_are_counted(project: Project) -> None:
    mixed = '{"name": "ann"}\nnot json\n\n{"text": "no name"}\n{"name": "bob"}'
    with project.worker():
        done = project.run("send", "hello.py", "greetings", "--skip-bad", stdin=mixed)

        assert "skipped line 2" in done.stderr
        assert "skipped line 4" in done.stderr
        assert "Sent 2 records to greetings, skipped 2 invalid lines." in done.stderr
        assert {line["key"] for line in counted(project, 2)} == {"ann", "bob"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nope"], "there is no topic 'nope' here; known: counts, greetings, notes"),
        (["notes", "--records"], "not a record"),
        (["greetings", "--key", "surname"], "the key function failed"),
    ],
)
def test_invalid_input_to_send_gives_a_clear_error(project: Project, arguments: list[str], message: str) -> None:
    done = project.run("send", "hello.py", *arguments, stdin='{"name": "ann"}\n', code=1)

    assert message in done.stderr
    assert len(done.stderr.splitlines()) <= 5


def test_many_records_go_through_a_worker_in_batches(project: Project) -> None:
    with project.worker():
        done = project.run("send", "hello.py", "greetings", stdin=lines({"name": f"n{n % 7}"} for n in range(3333)))
        assert "Sent 3,333 records to greetings." in done.stderr
        counted(project, 3333)
        values = [line["value"] for line in project.json("state", "list", "hello.py", "greeter", "seen")]
        assert sum(values) == 3333


def test_the_output_of_tail_can_be_sent_to_another_app(project: Project) -> None:
    send(project, "greetings", {"name": "ann"}, {"name": "bob"})
    printed = project.run("tail", "hello.py", "greetings", "--until-end").stdout

    project.run("send", "hello.py", "greetings", "--records", "--data", "other", stdin=printed)

    again = project.json("tail", "hello.py", "greetings", "--until-end", "--data", "other")
    assert again == [json.loads(line) for line in printed.splitlines()]


CUSTOMERS = """
import msgspec

from tidegate import App, Context, ValueState

app = App("crm", partitions=1)

class Customer(msgspec.Struct, frozen=True):
    id: str

customers = app.topic("customers", value_type=Customer, key="id", compact=True)
live = app.topic("live", value_type=Customer, compact=True)

@app.process(customers, to=live)
def follow(ctx: Context, customer: Customer | None, known: ValueState[Customer | None]) -> None:
    known.value = customer
    ctx.emit(customer)
"""


def test_null_is_sent_as_a_tombstone_and_printed_as_null(project: Project) -> None:
    (project.directory / "crm.py").write_text(CUSTOMERS)
    project.run("send", "crm.py", "customers", stdin=lines([{"id": "ann"}, {"id": "bob"}]))
    with project.worker("crm.py"):
        project.json("tail", "crm.py", "live", "--from-beginning", "--count", "2")
        project.run("savepoint", "create", "crm.py", "monday")
        project.run("send", "crm.py", "customers", "--records", stdin=lines([{"key": "ann", "value": None}]))
        project.json("tail", "crm.py", "live", "--from-beginning", "--count", "3")
    for topic in ("customers", "live"):
        found = project.json("tail", "crm.py", topic, "--until-end")
        assert [line["value"] for line in found if line["key"] == "ann"] == [{"id": "ann"}, None]
    replayed = project.run("replay", "crm.py", "follow", "ann", "--from", "monday").stdout
    assert [line.split()[-1] for line in replayed.splitlines() if " customers " in line] == ["null"]
    assert [line.split()[-1] for line in replayed.splitlines() if " emits " in line] == ["null"]


# -------------------------------------------------------------------------------------------------------------- tail


def test_tail_follows_committed_records(project: Project) -> None:
    with project.worker():
        send(project, "greetings", {"name": "old"})
        counted(project, 1)
        tail = project.start("tail", "hello.py", "counts", "--count", "2")
        deadline = time.monotonic() + 30
        sent = 0
        while tail.alive:
            assert time.monotonic() < deadline
            send(project, "greetings", {"name": "new"})
            sent += 1
        assert tail.wait() == 0
        found = [json.loads(line) for line in tail.stdout.splitlines()]
        assert [line["key"] for line in found] == ["new", "new"]
        assert found[0].keys() == {"key", "value", "timestamp", "partition", "offset", "headers"}
        assert found[0]["value"]["name"] == "new"
        assert found[0]["headers"] == {}


def test_tail_waits_for_an_apps_first_run(project: Project) -> None:
    tail = project.start("tail", "hello.py", "counts", "--count", "1")
    tail.wait_for("waiting for a worker or a 'tidegate send'")
    send(project, "greetings", {"name": "ann"})
    project.run("worker", "hello.py", "--until-end")

    assert tail.wait() == 0
    assert json.loads(tail.stdout)["key"] == "ann"


def test_tail_of_one_partition_shows_only_that(project: Project) -> None:
    send(project, "greetings", *({"name": f"n{number}"} for number in range(40)))

    parts = [project.json("tail", "hello.py", "greetings", "--until-end", "--partition", str(n)) for n in range(4)]

    assert sum(map(len, parts)) == 40
    assert all({line["partition"] for line in part} == {number} for number, part in enumerate(parts))
    done = project.run("tail", "hello.py", "greetings", "--partition", "4", code=1)
    assert "greetings has 4 partitions, 0 to 3: there is no partition 4" in done.stderr


def test_tail_of_an_unknown_topic_lists_the_existing_ones(project: Project) -> None:
    assert "there is no topic 'nope'" in project.run("tail", "hello.py", "nope", code=1).stderr
    send(project, "greetings", {"name": "ann"})
    assert "known: counts, greetings, hello.control" in project.run("tail", "hello.py", "nope", code=1).stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_tail_ends_quietly_on_a_signal_and_leaves_nothing_behind(project: Project, number: int) -> None:
    send(project, "greetings", {"name": "ann"})
    scratch = project.directory / "scratch"
    scratch.mkdir()
    tail = project.start("tail", "hello.py", "greetings", "--from-beginning", TMPDIR=str(scratch))
    tail.wait_for("ann")

    assert tail.stop(number) == 0
    assert tail.output == ""
    assert list(scratch.iterdir()) == []


def test_dead_letters_are_read_with_their_reasons(project: Project) -> None:
    send(project, "notes", {"who": 1}, {"nobody": 2})
    project.run("worker", "hello.py", "--until-end")

    (letter,) = project.json("tail", "hello.py", "hello.pad.dead-letters", "--until-end")

    assert letter["value"] == {"nobody": 2}
    assert letter["headers"]["origin-topic"] == "notes"
    assert "who" in letter["headers"]["error-message"]


# -------------------------------------------------------------------------------------------------- topics, services


def test_topics_and_services_are_listed_before_the_first_run(project: Project) -> None:
    listed = project.run("topics", "hello.py").stdout
    assert "greetings" in listed
    assert "not created yet" in listed
    assert "No worker runs" in project.run("services", "hello.py").stderr
    assert not project.data.exists()


def test_services_are_shown_with_their_declaration_and_lag(project: Project) -> None:
    with project.worker() as worker:
        send(project, "greetings", {"name": "ann"})
        counted(project, 1)
        rows = {row["name"]: row for row in json.loads(project.run("services", "hello.py", "--json").stdout)}
        greeter = rows["greeter"]
        assert (greeter["inputs"], greeter["outputs"], greeter["tasks"]) == (["greetings"], ["counts"], 4)
        assert greeter["states"] == {"seen": "value[int]"}
        assert (greeter["timers"], greeter["errors"], greeter["lag"]) == (["later"], "stop", 0)
        assert rows["pad"]["errors"] == "dead letter"
        table = project.run("services", "hello.py")
        assert "seen: value[int]" in table.stdout
        assert f"Run by process {worker.pid}" in table.stderr


def test_the_lag_is_shown_without_a_worker(project: Project) -> None:
    def greeter() -> Any:
        return json.loads(project.run("services", "hello.py", "--json").stdout)[0]

    send(project, "greetings", {"name": "ann"}, {"name": "bob"})
    project.run("worker", "hello.py", "--until-end")
    done = greeter()
    assert (done["lag"], [task["state"] for task in done["progress"]]) == (0, ["closed"] * 4)
    assert "ended" in project.run("services", "hello.py").stdout

    send(project, "greetings", {"name": "ann"})
    assert greeter()["lag"] > 0


def test_internal_topics_are_listed_on_request(project: Project) -> None:
    send(project, "greetings", {"name": "ann"})

    assert "changelog" not in project.run("topics", "hello.py").stdout
    listed = project.run("topics", "hello.py", "--all").stdout
    assert "hello.greeter.changelog" in listed
    assert "last of each key" in listed


# ------------------------------------------------------------------------------------------------------------- state


def test_state_is_shown_alike_with_and_without_a_worker(project: Project) -> None:
    def look() -> tuple[list[Any], ...]:
        return (
            project.json("state", "list", "hello.py", "greeter", "seen"),
            project.json("state", "list", "hello.py", "greeter", "seen", "n1"),
            project.json("state", "list", "hello.py", "greeter", "seen", "--limit", "3"),
            project.json("state", "get", "hello.py", "greeter", "seen", "n7"),
            project.json("state", "get", "hello.py", "pad", "last", "5"),
            project.json("state", "list", "hello.py", "pad", "last"),
            project.json("state", "timers", "hello.py", "greeter", "n7"),
        )

    names = [f"n{number}" for number in range(30)]
    with project.worker() as worker:
        send(project, "greetings", *({"name": name} for name in names))
        send(project, "notes", {"who": 5, "text": "five"}, {"who": 12, "text": "twelve"})
        counted(project, 30)
        deadline = time.monotonic() + 30
        while len(project.json("state", "list", "hello.py", "pad", "last")) < 2:
            assert time.monotonic() < deadline
        beside = look()
        worker.stop(signal.SIGKILL)

    assert look() == beside
    everything, some, three, one, five, pads, timers = beside
    assert [line["key"] for line in everything] == sorted(names)
    assert [line["key"] for line in some] == [name for name in sorted(names) if name.startswith("n1")]
    assert [line["key"] for line in three] == sorted(names)[:3]
    assert one == [1]
    assert five == [{"who": 5, "text": "five"}]
    assert [line["key"] for line in pads] == [12, 5]  # numbers, in the order of their digits
    assert [(line["key"], line["name"], line["time"]) for line in timers] == [("n7", "later", "event")]


def test_reading_state_changes_nothing(project: Project) -> None:
    send(project, "greetings", {"name": "ann"})
    project.run("worker", "hello.py", "--until-end")
    before = project.run("topics", "hello.py", "--all", "--json").stdout

    project.json("state", "list", "hello.py", "greeter", "seen")

    assert project.run("topics", "hello.py", "--all", "--json").stdout == before


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["get", "hello.py", "greeter", "seen", "nobody"], "greeter.seen has no value for the key 'nobody'"),
        (["get", "hello.py", "greeter", "seen"], "needs a key"),
        (["get", "hello.py", "nobody", "seen", "x"], "there is no service 'nobody' here; known: greeter, pad"),
        (["get", "hello.py", "greeter", "sean", "x"], "there is no state 'sean' of service 'greeter'; known: seen"),
        (["get", "hello.py", "pad", "last", "five"], "keys are of type int"),
    ],
)
def test_an_unknown_name_gives_an_error_that_lists_the_known_ones(
    project: Project, arguments: list[str], message: str
) -> None:
    done = project.run("state", *arguments, code=1)

    assert message in done.stderr
    assert done.stdout == ""
    assert not project.data.exists()


# ------------------------------------------------------------------------------------------------------------- reset


@pytest.mark.parametrize("beside", [True, False])
def test_after_a_reset_the_app_starts_from_the_beginning_of_its_input(project: Project, beside: bool) -> None:
    def emitted() -> int:
        return len(project.json("tail", "hello.py", "counts", "--until-end"))

    def seen() -> list[Any]:
        return project.json("state", "list", "hello.py", "greeter", "seen")

    with project.worker() as worker:
        send(project, "greetings", {"name": "ann"}, {"name": "ann"})
        counted(project, 2)
        if not beside:
            worker.stop()
        project.run("reset", "hello.py", "--yes")
        if not beside:
            assert seen() == []
            project.run("worker", "hello.py", "--until-end")
            assert emitted() == 5  # once more, and what the timer says at the end
        else:
            counted(project, 4)
        assert seen() == [{"key": "ann", "value": 2}]

        project.run("reset", "hello.py", "--outputs", "--yes")
        if beside:
            counted(project, 2)
            assert seen() == [{"key": "ann", "value": 2}]
        else:
            assert emitted() == 0

        project.run("reset", "hello.py", "--all", "--yes")
        assert seen() == []
        assert project.json("tail", "hello.py", "greetings", "--until-end") == []
        if beside:
            send(project, "greetings", {"name": "bob"})
            assert counted(project, 1)[0]["key"] == "bob"


def test_reset_lists_what_it_deletes_and_asks_for_confirmation(project: Project) -> None:
    send(project, "greetings", {"name": "ann"})

    done = project.run("reset", "hello.py", stdin="n\n", code=1)

    assert "hello.greeter.changelog" in done.stderr
    assert "get them once more: counts (--outputs empties them)" in done.stderr
    assert "Nothing was done." in done.stderr
    assert "emptied" in project.run("reset", "hello.py", stdin="y\n").stderr


def test_tail_continues_after_a_reset(project: Project) -> None:
    with project.worker():
        send(project, "greetings", {"name": "ann"}, {"name": "ann"})
        counted(project, 2)
        tail = project.start("tail", "hello.py", "greetings")
        while '"cat"' not in tail.stdout:  # it says nothing when it is ready
            send(project, "greetings", {"name": "cat"})
            assert tail.alive
        project.run("reset", "hello.py", "--all", "--yes")
        send(project, "greetings", {"name": "bob"})
        tail.wait_for('"bob"')
        assert tail.stop() == 0
        assert '"ann"' not in tail.stdout


def test_the_socket_moves_to_a_shorter_path_if_its_path_is_too_long(project: Project) -> None:
    deep = Path("d" * 60) / ("e" * 60)
    with project.worker("hello.py", "--data", str(deep)):
        project.run("send", "hello.py", "greetings", "--data", str(deep), stdin=lines([{"name": "ann"}]))
        found = project.json("tail", "hello.py", "counts", "--from-beginning", "--count", "1", "--data", str(deep))
        assert found[0]["key"] == "ann"
