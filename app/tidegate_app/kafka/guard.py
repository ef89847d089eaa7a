"""Kills a broker whose owner has ended. A separate program that uses the standard library only:

    python guard.py OWNER-LOCK BROKER-LOCK PID-FILE

The owner holds OWNER-LOCK until it ends, and removes the file when it no longer needs the guard. The broker holds
BROKER-LOCK until it ends. Since the kernel releases the locks, neither a reused process id nor a kill -9 can mislead
the guard.
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
    """The file of a broker that is being started may not exist yet: the caller retries."""
    try:
        with open(pid_file) as file:
            os.kill(int(file.read()), signal.SIGKILL)
    except (FileNotFoundError, ProcessLookupError, ValueError):
        return


if __name__ == "__main__":
    main(*sys.argv[1:])
