"""send, tail, topics, services, state, reset and config on a broker: beside running workers, and without any."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.kafka.projects import KafkaProject, eventually
from tidegate_app.kafka.configuration import free_port
from tidegate_app.kafka.plugin import SharedKafka


@pytest.fixture
def project(tmp_path: Path, kafka: SharedKafka) -> Iterator[KafkaProject]:
    made = KafkaProject(tmp_path, kafka.url)
    yield made
    made.close()


def rows(project: KafkaProject, *arguments: str) -> dict[str, Any]:
    return {row["name"]: row for row in json.loads(project.run(*arguments, "--json").stdout)}


def listed(project: KafkaProject, *arguments: str) -> set[str]:
    return set(rows(project, "topics", "hello.py", *arguments))


# ------------------------------------------------------------------------------------------------------------ sending


def test_without_a_worker_send_creates_the_topics_and_a_bounded_run_reads_the_records(project: KafkaProject) -> None:
    project.greet(["ann", "bob", "ann"])
    assert rows(project, "topics", "hello.py")[project.topic("greetings")]["records"] == 3
    assert rows(project, "services", "hello.py")["greeter"]["lag"] > 0

    project.run("worker", "hello.py", "--until-end")

    assert sorted(project.all_counted()) == [("ann", -2), ("ann", 1), ("ann", 2), ("bob", -1), ("bob", 1)]
    assert project.seen() == {"ann": 2, "bob": 1}
    assert rows(project, "services", "hello.py")["greeter"]["lag"] == 0


def test_the_output_of_tail_can_be_sent_again(project: KafkaProject) -> None:
    project.greet(["ann", "bob"])
    printed = project.run("tail", "hello.py", project.topic("greetings"), "--until-end").stdout

    project.run("send", "hello.py", project.topic("greetings"), "--records", stdin=printed)

    again = project.json("tail", "hello.py", project.topic("greetings"), "--until-end")
    first = [json.loads(line) for line in printed.splitlines()]
    assert len(again) == 4
    assert {(line["key"], line["partition"]) for line in again} == {(line["key"], line["partition"]) for line in first}


def test_a_bad_line_stops_a_send_after_all_lines_before_it(project: KafkaProject) -> None:
    bad = '{"name": "ann"}\n{"name": 7}\n'

    done = project.run("send", "hello.py", project.topic("greetings"), stdin=bad, code=1)

    assert "Sent 1 record to" in done.stderr
    assert len(project.json("tail", "hello.py", project.topic("greetings"), "--until-end")) == 1


def test_a_record_above_the_request_limit_is_refused_with_its_line(project: KafkaProject) -> None:
    big = json.dumps({"name": "ann", "text": "x" * 60_000})

    done = project.run(
        "send", "hello.py", project.topic("greetings"), stdin=big, code=1, TIDEGATE_KAFKA_MAX_REQUEST_BYTES="50000"
    )

    assert "Error: line 1: " in done.stderr
    assert "over the limit of 49,939 bytes" in done.stderr


# ------------------------------------------------------------------------------------------------- beside two workers


def test_commands_work_alongside_two_workers(project: KafkaProject) -> None:
    names = [f"n{number}" for number in range(40)]
    with project.worker() as one, project.worker() as two:
        project.greet(names * 2)
        assert sorted(project.counted(80)) == sorted((name, count) for name in names for count in (1, 2))

        def settled() -> Any:
            services = rows(project, "services", "hello.py")
            tasks = services["greeter"]["progress"]
            return services if services["greeter"]["lag"] == 0 and all(task["worker"] for task in tasks) else None

        services = eventually(settled)
        greeter = services["greeter"]
        workers = [task["worker"] for task in greeter["progress"]]
        assert [sum(f"process {worker.pid} on " in name for name in workers) for worker in (one, two)] == [2, 2]
        assert {task["state"] for task in greeter["progress"]} == {"running"}
        assert abs(greeter["watermark"] / 1000 - time.time()) < 120
        assert services["pad"]["inputs"] == [f"{project.app}.pad.{project.topic('notes')}.by-key"]
        table = project.run("services", "hello.py")
        assert f"process {one.pid} on " in table.stderr
        assert f"process {two.pid} on " in table.stderr

        assert project.seen() == dict.fromkeys(names, 2)
        assert project.seen("n1") == {name: 2 for name in names if name.startswith("n1")}
        assert len(project.seen("--limit", "3")) == 3
        assert project.json("state", "get", "hello.py", "greeter", "seen", "n7") == [2]
        (timer,) = project.json("state", "timers", "hello.py", "greeter", "n7")
        assert (timer["key"], timer["name"], timer["time"]) == ("n7", "later", "event")
        assert len(project.json("state", "timers", "hello.py", "greeter")) == 40
        missing = project.run("state", "get", "hello.py", "greeter", "seen", "nobody", code=1)
        assert "greeter.seen has no value for the key 'nobody'" in missing.stderr

        refused = project.run("reset", "hello.py", code=1)
        assert "has running workers, and its state cannot be replaced while they run" in refused.stderr
        assert f"process {one.pid} on " in refused.stderr
        assert "Stop them and retry." in refused.stderr
        assert project.seen("--limit", "1") != {}


def test_reading_state_changes_nothing_and_leaves_no_files(project: KafkaProject) -> None:
    project.greet(["ann"])
    project.run("worker", "hello.py", "--until-end")
    scratch = project.directory / "scratch"
    scratch.mkdir()
    before = project.run("topics", "hello.py", "--all", "--json").stdout

    project.run("state", "list", "hello.py", "greeter", "seen", TMPDIR=str(scratch))

    assert list(scratch.iterdir()) == []
    assert project.run("topics", "hello.py", "--all", "--json").stdout == before


# -------------------------------------------------------------------------------------------------------------- tail


def test_tail_follows_committed_records(project: KafkaProject) -> None:
    counts = project.topic("counts")
    with project.worker():
        project.greet(["old"])
        project.counted(1)
        tail = project.start("tail", "hello.py", counts, "--count", "2")
        deadline = time.monotonic() + 30
        while tail.alive:
            assert time.monotonic() < deadline
            project.greet(["new"])
        assert tail.wait() == 0
        assert [json.loads(line)["key"] for line in tail.stdout.splitlines()] == ["new", "new"]


def test_tail_waits_for_a_topic_to_be_created(project: KafkaProject) -> None:
    tail = project.start("tail", "hello.py", project.topic("greetings"), "--count", "1")
    tail.wait_for("waiting for it")
    project.greet(["ann"])

    assert tail.wait() == 0
    assert json.loads(tail.stdout)["key"] == "ann"


def test_tail_of_one_partition_shows_only_that(project: KafkaProject) -> None:
    greetings = project.topic("greetings")
    project.greet(f"n{number}" for number in range(40))

    parts = [project.json("tail", "hello.py", greetings, "--until-end", "--partition", str(n)) for n in range(4)]

    assert sum(map(len, parts)) == 40
    assert all({line["partition"] for line in part} == {number} for number, part in enumerate(parts))
    assert "has 4 partitions" in project.run("tail", "hello.py", greetings, "--partition", "4", code=1).stderr


def test_tail_continues_after_a_reset(project: KafkaProject) -> None:
    greetings = project.topic("greetings")
    project.greet(["ann"] * 20)
    tail = project.start("tail", "hello.py", greetings, "--from-beginning")
    tail.wait_for('"ann"')

    project.run("reset", "hello.py", "--all", "--yes")
    project.greet(["bob"])

    tail.wait_for('"bob"')
    assert tail.stop() == 0


# ----------------------------------------------------------------------------------------------------- topics, config


def test_only_topics_of_the_app_are_listed(project: KafkaProject, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    other = KafkaProject(tmp_path / "other", project.broker, app=f"{project.app}.eu")
    try:
        project.greet(["ann"])
        other.greet(["bob"])
        own = listed(project, "--all")
        assert {project.topic("greetings"), f"{project.app}.greeter.changelog", f"{project.app}.control"} <= own
        assert not [name for name in own if name.startswith(other.app)]
        assert not [name for name in listed(project) if "changelog" in name]
    finally:
        other.close()


def test_config_shows_the_broker_and_where_it_comes_from(project: KafkaProject) -> None:
    shown = json.loads(project.run("config", "hello.py", "--json").stdout)
    assert (shown["broker"]["value"], shown["broker"]["source"]) == (project.broker, "environment")

    flagged = json.loads(project.run("config", "hello.py", "--json", "--broker", "kafka://elsewhere:9092").stdout)
    assert (flagged["broker"]["value"], flagged["broker"]["source"]) == ("kafka://elsewhere:9092", "flag")


@pytest.mark.parametrize(
    "arguments",
    [["services"], ["topics"], ["state", "list", "hello.py", "greeter", "seen"], ["reset", "hello.py", "--yes"]],
    ids=lambda arguments: arguments[0],
)
def test_a_missing_broker_gives_an_error_with_advice(project: KafkaProject, arguments: list[str]) -> None:
    nowhere = f"kafka://127.0.0.1:{free_port()}"
    command = arguments if len(arguments) > 1 else [*arguments, "hello.py"]
    began = time.monotonic()

    done = project.run(*command, "--broker", nowhere, code=1)

    assert f"Error: no broker answers at {nowhere}" in done.stderr
    assert "tidegate kafka start" in done.stderr
    assert len(done.stderr.splitlines()) <= 3
    assert time.monotonic() - began < 15


def test_a_worker_logs_that_it_waits_for_a_broker(project: KafkaProject) -> None:
    nowhere = f"kafka://127.0.0.1:{free_port()}"

    done = project.run("worker", "hello.py", "--broker", nowhere, "--kafka-connect-timeout", "3", code=1)

    assert f"waiting for a broker at {nowhere}, for 3 s at most" in done.stderr
    assert f"Error: no broker answers at {nowhere}" in done.stderr


# ------------------------------------------------------------------------------------------------------------- reset


def test_after_a_reset_the_app_starts_from_the_beginning_of_its_input(project: KafkaProject) -> None:
    project.greet(["ann", "ann"])
    project.run("worker", "hello.py", "--until-end")
    assert len(project.all_counted()) == 3

    asked = project.run("reset", "hello.py", stdin="n\n", code=1)
    assert f"{project.app}.greeter.changelog" in asked.stderr
    assert f"in {project.broker}" in asked.stderr
    assert "Nothing was done." in asked.stderr

    project.run("reset", "hello.py", "--yes")
    assert project.seen() == {}
    assert list(project.data.glob("*/worker-*/stores")) == []
    project.run("worker", "hello.py", "--until-end")
    assert len(project.all_counted()) == 6  # once more
    assert project.seen() == {"ann": 2}

    project.run("reset", "hello.py", "--outputs", "--yes")
    assert project.all_counted() == []
    project.run("worker", "hello.py", "--until-end")
    assert len(project.all_counted()) == 3


def test_a_worker_on_another_machine_discards_its_state_after_a_reset(project: KafkaProject) -> None:
    """Its directory could not be emptied: the changelogs show the reset."""
    project.greet(["ann", "ann"])
    project.run("worker", "hello.py", "--until-end", "--data", "elsewhere")
    assert list(project.directory.glob("elsewhere/*/worker-0/stores/greeter/*")) != []

    project.run("reset", "hello.py", "--outputs", "--yes", "--data", "here")
    done = project.run("worker", "hello.py", "--until-end", "--data", "elsewhere")

    assert done.stderr.count("the local store is rebuilt") == 12
    assert project.seen() == {"ann": 2}
    assert len(project.all_counted()) == 3


def test_a_full_reset_does_not_affect_other_apps(project: KafkaProject, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    other = KafkaProject(tmp_path / "other", project.broker, app=f"{project.app}.eu")
    try:
        other.greet(["bob"])
        other.run("worker", "hello.py", "--until-end")
        project.greet(["ann"])

        emptied = project.run("reset", "hello.py", "--all", "--yes").stderr

        assert project.topic("greetings") in emptied
        assert other.app not in emptied
        assert project.json("tail", "hello.py", project.topic("greetings"), "--until-end") == []
        assert other.seen() == {"bob": 1}
        assert len(other.json("tail", "hello.py", other.topic("greetings"), "--until-end")) == 1
    finally:
        other.close()
