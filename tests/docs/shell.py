"""A program called `tidegate` for the shells of tests. Importing Faust takes most of a second, and a page runs many
commands: so each is a copy of a process that has imported everything, with the shell's own files and environment."""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import connection, reduction
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any

from tests.integration.commands import prepared

__all__ = ("program",)

PROGRAM = """\
#!{python} -IS
import json, os, signal, socket, sys
server = socket.socket(socket.AF_UNIX)
server.connect({place!r})
socket.send_fds(server, [b"-"], [0, 1, 2])
server.sendall(json.dumps([os.getpid(), sys.argv[1:], os.getcwd(), dict(os.environ)]).encode() + b"\\n")
told = server.makefile()
process = int(told.readline())
for number in (signal.SIGINT, signal.SIGTERM):
    signal.signal(number, lambda number, _: os.kill(process, number))
sys.exit(int(told.readline()))
"""


@contextmanager
def program() -> Iterator[Path]:
    """A directory with the program, for PATH."""
    with tempfile.TemporaryDirectory(prefix="tidegate-program-") as directory:
        place, path = Path(directory, "socket"), Path(directory, "tidegate")
        path.write_text(PROGRAM.format(python=sys.executable, place=str(place)))
        path.chmod(0o700)
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(place))
            listener.listen()
            end, ending = socket.socketpair()
            thread = threading.Thread(target=_serve, args=(listener, ending))
            thread.start()
            try:
                yield path.parent
            finally:
                end.close()
                thread.join()
                ending.close()


def _serve(listener: socket.socket, ending: socket.socket) -> None:
    """Until the other end of `ending` is closed. Whatever runs then is killed."""
    commands: dict[socket.socket, Command] = {}
    while True:
        sentinels = [command.process.sentinel for command in commands.values()]
        ready = connection.wait([listener, ending, *commands, *sentinels])
        for program, command in list(commands.items()):
            if command.process.sentinel in ready:
                program.sendall(b"%d\n" % command.code)
            elif program in ready or ending in ready or command.orphaned:
                command.process.kill()
            else:
                continue
            command.process.join()
            program.close()
            del commands[program]
        if ending in ready:
            return
        if listener in ready:
            program, _ = listener.accept()
            commands[program] = Command(program)


class Command:
    """A process that runs what a program was told to run."""

    def __init__(self, program: socket.socket) -> None:
        _, files, _, _ = socket.recv_fds(program, 1, 3)
        with program.makefile() as sent:
            self._program, arguments, directory, environment = json.loads(sent.readline())
        handed = [_Handed(file) for file in files]
        self.process: ForkServerProcess = prepared().Process(
            target=_run, args=(arguments, directory, environment, handed)
        )
        self.process.start()
        for file in files:
            os.close(file)
        program.sendall(f"{self.process.pid}\n".encode())

    @property
    def code(self) -> int:
        """As a shell has it."""
        self.process.join()
        code = self.process.exitcode or 0
        return code if code >= 0 else 128 - code

    @property
    def orphaned(self) -> bool:
        """Whether the program was killed: its socket may be the last that is taken from it."""
        try:
            return Path(f"/proc/{self._program}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
        except OSError:
            return True


class _Handed:
    """A file for another process, at the position where it is: as a number there."""

    def __init__(self, file: int) -> None:
        self._file = file

    def __reduce__(self) -> tuple[Any, ...]:
        return _received, (reduction.DupFd(self._file),)


def _received(file: Any) -> int:
    received: int = file.detach()
    return received


def _run(arguments: list[str], directory: str, environment: dict[str, str], files: list[int]) -> None:
    """In the process of the command."""
    for descriptor, file in enumerate(files):
        os.dup2(file, descriptor)
        os.close(file)
    sys.stdin = os.fdopen(0, "r", closefd=False)
    sys.stdout, sys.stderr = (os.fdopen(descriptor, "w", closefd=False) for descriptor in (1, 2))
    os.chdir(directory)
    os.environ.clear()
    os.environ.update(environment)
    sys.dont_write_bytecode = bool(environment.get("PYTHONDONTWRITEBYTECODE"))
    sys.path[:] = [place for place in sys.path if place]  # the directory is not searched by programs
    signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.argv = ["tidegate", *arguments]
    from tidegate_app.cli import main

    main()
