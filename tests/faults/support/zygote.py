"""A process that has imported everything and waits to be forked, so that a worker starts within milliseconds.

It reads requests from its input, one JSON object a line, and answers each with one. `start` forks a child that becomes
a worker; `poll` asks how a child ended. Only `poll` reaps, so a process id stays its child's until the test has heard
of its end. When the input ends, because the test run is over or has died, it ends every child and itself.
"""

from __future__ import annotations

import ctypes
import gc
import json
import os
import signal
import sys
import traceback
from typing import Any, NoReturn

from tests.faults.support import worker

__all__ = ("main",)

PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None) if sys.platform == "linux" else None


def main() -> None:
    children: set[int] = set()
    if _threads() != 1:
        raise RuntimeError(f"{_threads()} threads: only a process with one can be copied")
    gc.collect()
    gc.freeze()  # children need not look at what they share
    try:
        for line in sys.stdin:
            answer = _answer(json.loads(line), children)
            sys.stdout.write(json.dumps(answer) + "\n")
            sys.stdout.flush()
    finally:
        for child in children:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)


def _answer(request: dict[str, Any], children: set[int]) -> dict[str, Any]:
    if request["do"] == "start":
        child = os.fork()
        if child == 0:
            _become_worker(request)
        children.add(child)
        return {"pid": child}
    child, status = os.waitpid(request["pid"], os.WNOHANG)
    if child == 0:
        return {"status": None}
    children.discard(child)
    return {"status": os.waitstatus_to_exitcode(status)}


def _become_worker(request: dict[str, Any]) -> NoReturn:
    """In the child, and never back from it."""
    status = 1
    try:
        if _libc is not None:
            _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        nothing = os.open(os.devnull, os.O_RDONLY)
        output = os.open(request["output"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        for source, target in ((nothing, 0), (output, 1), (output, 2)):
            os.dup2(source, target)
        os.environ.update(request["environment"])
        status = worker.live(request["arguments"])
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def _threads() -> int:
    return len(os.listdir("/proc/self/task")) if sys.platform == "linux" else 1


if __name__ == "__main__":
    main()
