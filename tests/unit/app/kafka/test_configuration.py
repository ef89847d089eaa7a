"""The files that a broker reads."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from tidegate_app.kafka.configuration import free_port, is_free, server_properties


def settings(storage: Path) -> dict[str, str]:
    lines = server_properties(9092, 9093, storage).splitlines()
    return dict(line.split("=", 1) for line in lines)


def test_every_address_is_loopback() -> None:
    found = settings(Path("/data"))

    assert found["listeners"] == "PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093"
    assert found["advertised.listeners"] == "PLAINTEXT://127.0.0.1:9092"


@pytest.mark.parametrize(
    ("path", "written"),
    [
        ("/plain/a=b", "/plain/a=b"),
        ("/two words", "/two\\u0020words"),
        ("/back\\slash", "/back\\u005cslash"),
        ("/wär", "/w\\u00e4r"),
        ("/😀", "/\\ud83d\\ude00"),
    ],
)
def test_any_directory_can_be_written_as_java_reads_it(path: str, written: str) -> None:
    assert settings(Path(path))["log.dirs"] == written


def test_a_port_with_a_listener_is_not_free() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        assert not is_free(port)

    assert is_free(port)


def test_chosen_ports_are_below_those_of_outgoing_connections() -> None:
    assert all(20000 <= free_port() < 32000 for _ in range(20))
