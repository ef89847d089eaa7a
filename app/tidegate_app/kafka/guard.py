"""Ends a broker whose owner is gone. A program of its own, with nothing but the standard library:

    python guard.py OWNER-LOCK BROKER-LOCK PID-FILE

The owner holds OWNER-LOCK as long as it lives, and removes the file when the broker is no longer its business. The
broker holds BROKER-LOCK as long as it lives. So neither a reused process id nor a kill -9 can mislead the guard.
"""

from __future__ import annotations

import fcntl
import os
import signal
import sys
import time

__all__ = ("main",)

_PAUSE = 0.05


def main(owner_lock: str, broker_lock: str, pid_file: str) -> None:
    with open(owner_lock) as owner:
        fcntl.flock(owner, fcntl.LOCK_SH)
    if not os.path.exists(owner_lock):
        return
    while _is_held(broker_lock):
        _kill(pid_file)
        time.sleep(_PAUSE)


def _is_held(path: str) -> bool:
    try:
        with open(path) as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except FileNotFoundError:
        return False
    return False


def _kill(pid_file: str) -> None:
    """A broker that has just been started may not have one yet: the caller comes back."""
    try:
        with open(pid_file) as file:
            os.kill(int(file.read()), signal.SIGKILL)
    except (FileNotFoundError, ProcessLookupError, ValueError):
        return


if __name__ == "__main__":
    main(*sys.argv[1:])
