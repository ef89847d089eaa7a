from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from tidegate.owner_rpc import address
from tidegate.owner_rpc.address import Address, bind, publish_address, read_address, remove_address


def mode(path: Path | str) -> int:
    return stat.S_IMODE(os.stat(path).st_mode)


@pytest.fixture
def near(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory whose path is short enough for a socket."""
    directory = tmp_path_factory.mktemp("d")
    monkeypatch.setattr(address, "MAX_PATH", len(str(directory)) + 30)
    return directory


def test_the_socket_is_in_the_directory_and_for_its_user_only(near: Path) -> None:
    with bind(near) as bound:
        announced = publish_address(near, bound)

        assert Path(announced.socket) == near / "control.sock"
        assert (mode(near / "control.sock"), mode(near / "control.json")) == (0o600, 0o600)
        assert read_address(near) == announced
        assert announced.pid == os.getpid()


def test_a_path_that_is_too_long_moves_the_socket_to_a_private_directory(tmp_path: Path) -> None:
    deep = tmp_path / ("d" * 120)
    deep.mkdir()
    with bind(deep) as bound:
        announced = publish_address(deep, bound)
        private = Path(announced.socket).parent

        assert private != deep
        assert len(announced.socket) < 100
        assert mode(private) == 0o700
        remove_address(deep)

    assert not private.exists()
    assert read_address(deep) is None


def test_a_killed_owners_leftovers_are_replaced(near: Path) -> None:
    with bind(near) as killed:
        publish_address(near, killed)
    with bind(near) as bound:
        publish_address(near, bound)

        assert stat.S_ISSOCK(os.lstat(near / "control.sock").st_mode)


def test_files_other_than_the_apps_socket_are_not_removed(near: Path) -> None:
    precious = near / "control.sock"
    precious.write_text("not a socket")
    other = near / "other"
    other.write_text("precious")
    for path in (precious, other):
        (near / "control.json").write_bytes(
            b'{"pid": 1, "socket": "%s", "started": 1, "command": "x"}' % str(path).encode()
        )
        remove_address(near)
        assert path.exists()


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"pid": "x"}'])
def test_a_file_that_cannot_be_read_is_no_address(near: Path, content: bytes) -> None:
    (near / "control.json").write_bytes(content)

    assert read_address(near) is None


def test_an_address_identifies_its_owner() -> None:
    assert str(Address(pid=7, socket="s", started=1, command="tidegate worker x")) == "process 7 (tidegate worker x)"
