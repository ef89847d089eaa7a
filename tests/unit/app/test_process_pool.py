"""How the processes of a worker are started. That they run, stop and come back is shown with real ones."""

from __future__ import annotations

import pytest

from tidegate.errors import SettingsError
from tidegate.settings_resolution import resolve
from tidegate_app.process_pool import Pool
from tidegate_app.worker import FINISHED


def pool(kind: type[Pool] = Pool, **flags: object) -> Pool:
    given = {"broker": "kafka://127.0.0.1:9092", **flags}
    return kind("hello.py", given, resolve({}, given, {}).settings, until_end=False)


def test_a_process_gets_the_command_with_its_own_port_and_instance() -> None:
    many = pool(processes=3, metrics="127.0.0.1:9464", kafka_instance="pod", commit_interval="0.5", data=None)

    command = many._command(2, 7)

    assert command[1:6] == ["-P", "-m", "tidegate_app", "worker", "hello.py"]
    assert set(command[6:]) == {
        "--broker=kafka://127.0.0.1:9092",
        "--processes=1",
        "--metrics=127.0.0.1:9466",
        "--kafka-instance=pod-2",
        "--commit-interval=0.5",
        "--child=2:7",
    }


def test_unset_options_are_not_forwarded() -> None:
    assert pool(processes=2)._command(0, 3)[6:] == ["--broker=kafka://127.0.0.1:9092", "--processes=1", "--child=0:3"]


def test_processes_that_cannot_be_are_refused_before_any_is_started() -> None:
    with pytest.raises(SettingsError, match="leaves too few"):
        pool(processes=3, metrics="127.0.0.1:65534")
    with pytest.raises(SettingsError, match="cannot share an embedded log"):
        pool(processes=2, broker="embedded://")
    with pytest.raises(SettingsError, match="processes must be at least 1"):
        pool(processes=0)


def test_a_switch_is_passed_on_without_a_value() -> None:
    assert "--allow-dropped" in pool(processes=2, allow_dropped="on")._command(0, 3)


class Brief(Pool):
    """The processes end as soon as they start. The first one that ends stops the others."""

    def _command(self, number: int, leash: int) -> list[str]:
        return ["/bin/sh", "-c", f"exit {FINISHED}"]


def test_a_process_stopped_while_it_exits_has_not_failed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(
        "tidegate_app.process_pool.set_up_logging", lambda _: None
    )  # it is for a process, not for a test
    for _ in range(20):
        pool(Brief, processes=8).run()
