"""The doctor says what is wrong with a machine, and what to do."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

import pytest

from tidegate.settings_resolution import resolve
from tidegate_app.actions.doctor import Finding, examine


def findings(**flags: Any) -> dict[str, Finding]:
    return {finding.what: finding for finding in examine(resolve({}, flags, {}))}


def test_a_machine_that_has_everything(tmp_path: Path) -> None:
    found = findings(data=tmp_path / "new" / "place")
    assert found.keys() == {"Python", "Java", "Disk", "Broker", "Clock", "API port"}
    assert [one for one in found.values() if one.verdict == "error"] == []
    assert "GB free" in found["Disk"].says
    assert not (tmp_path / "new").exists()


def test_each_problem_comes_with_advice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        found = findings(data=tmp_path, broker="kafka://127.0.0.1:1", api=f"127.0.0.1:{port}")
    assert (found["Broker"].verdict, "tidegate kafka start" in found["Broker"].says) == ("error", True)
    assert (found["API port"].verdict, "another process" in found["API port"].says) == ("error", True)
    assert (found["Java"].verdict, "17" in found["Java"].says) == ("warning", True)
    assert findings(api="0.0.0.0:8000")["API port"].verdict == "error"
    assert findings(api="off")["API port"].verdict == "ok"


def test_the_default_port_may_be_in_use() -> None:
    found = findings()["API port"]
    assert found.verdict == "ok"
