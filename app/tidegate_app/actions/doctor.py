"""What `tidegate doctor` looks at: whether this machine has what an app needs, and what to do if not."""

from __future__ import annotations

import platform
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, Literal, NamedTuple

from tidegate.directories import on_kafka
from tidegate.settings import Settings
from tidegate.settings_resolution import Resolved

__all__ = ("Finding", "examine")

Verdict = Literal["ok", "warning", "error"]

LEAST_FREE: Final = 1 << 30
"""Bytes under the data directory below which a warning is due."""
_SECONDS: Final = 3.0
_DRIFT: Final = 5.0
"""Seconds that this machine's clock and a broker's may differ."""
_RUNS: Final = ((3, 11), (3, 14))


class Finding(NamedTuple):
    what: str
    verdict: Verdict
    says: str
    """What was found, and what to do if it is wrong."""


def examine(resolved: Resolved) -> Iterator[Finding]:
    settings = resolved.settings
    checks: tuple[Callable[[Settings], Finding], ...] = (_python, _java, _disk, _broker, _clock)
    for check in checks:
        yield check(settings)
    yield _port(settings, explicit=resolved.sources["api"] != "default")


def _python(_: Settings) -> Finding:
    first, last = _RUNS
    found = f"{platform.python_version()} at {sys.executable}"
    if first <= sys.version_info < last:
        return Finding("Python", "ok", found)
    return Finding("Python", "error", f"{found}: Tidegate runs on 3.11 to 3.13")


def _java(_: Settings) -> Finding:
    """Only a broker that is started here, and Spark, need one."""
    java = shutil.which("java")
    if java is None:
        return Finding(
            "Java", "warning", "none; 'tidegate kafka start' and Spark jobs need 17 or newer, services do not"
        )
    try:
        told = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=20, check=False).stderr  # noqa: S603
    except (OSError, subprocess.TimeoutExpired) as error:
        return Finding("Java", "warning", f"{java} does not run: {error}")
    version = told.split('"')[1] if '"' in told else told.strip()[:80]
    major = version.split(".")[0]
    if major.isdecimal() and int(major) < 17:
        return Finding("Java", "warning", f"{version} at {java}; 'tidegate kafka start' and Spark need 17 or newer")
    return Finding("Java", "ok", f"{version} at {java}")


def _disk(settings: Settings) -> Finding:
    place = settings.data.absolute()
    while not place.exists():
        place = place.parent
    free = shutil.disk_usage(place).free
    shown = f"{free / 1e9:,.1f} GB free for {settings.data}"
    if not _writable(place):
        return Finding("Disk", "error", f"{place} cannot be written: give this user access, or choose --data DIR")
    if free < LEAST_FREE:
        return Finding("Disk", "warning", f"{shown}: a log or a store that finds no room stops its worker")
    return Finding("Disk", "ok", shown)


def _writable(place: Path) -> bool:
    probe = place / f".tidegate-doctor-{time.time_ns()}"
    try:
        probe.write_bytes(b"")
        probe.unlink()
    except OSError:
        return False
    return True


def _broker(settings: Settings) -> Finding:
    if not on_kafka(settings):
        return Finding("Broker", "ok", "none is needed: the log is inside the worker (embedded://)")
    from tidegate_app.kafka.probe import answers

    addresses = settings.broker.removeprefix("kafka://").split(",")
    if settings.kafka_tls == "on" or settings.kafka_sasl_mechanism:
        open_ = [address for address in addresses if _listens(address)]
        if open_:
            return Finding(
                "Broker", "ok", f"{', '.join(open_)} can be reached; login and TLS show when a worker starts"
            )
    elif silent := [address for address in addresses if not answers(address, _SECONDS)]:
        return Finding(
            "Broker",
            "error" if len(silent) == len(addresses) else "warning",
            f"{', '.join(silent)} does not answer. Is it running ('tidegate kafka start'), and is --broker right?",
        )
    else:
        return Finding("Broker", "ok", f"{', '.join(addresses)} answers")
    return Finding("Broker", "error", f"{', '.join(addresses)} cannot be reached: check --broker and the network")


def _listens(address: str) -> bool:
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), _SECONDS).close()
    except OSError:
        return False
    return True


def _port(settings: Settings, *, explicit: bool) -> Finding:
    if settings.api in ("", "off"):
        return Finding("API port", "ok", "there is no API (--api off)")
    from tidegate.errors import SettingsError
    from tidegate_api.server import listen

    try:
        with listen(settings, explicit=explicit) as listening:
            port = listening.getsockname()[1]
    except SettingsError as error:
        return Finding("API port", "error", str(error))
    wanted = settings.api.rpartition(":")[2]
    taken = "" if str(port) == wanted else f" ({wanted} is taken: a worker takes the next free one)"
    return Finding("API port", "ok", f"{settings.api.rpartition(':')[0]}:{port} is free{taken}")


def _clock(_: Settings) -> Finding:
    """Timers by the clock, TTLs and web tokens go by it. It must not jump; whether it is right, only a server knows."""
    year = time.gmtime().tm_year
    if year < 2024:
        return Finding("Clock", "error", f"it is {year} here: set the clock; timers and times to live go by it")
    before, started = time.time(), time.monotonic()
    time.sleep(0.05)
    drift = abs((time.time() - before) - (time.monotonic() - started))
    if drift > _DRIFT / 100:
        return Finding("Clock", "warning", f"it has just jumped by {drift * 1000:.0f} ms: is it being set?")
    synchronised = _synchronised()
    shown = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime())
    if synchronised is False:
        return Finding("Clock", "warning", f"{shown}, not synchronised: start an NTP client")
    return Finding("Clock", "ok", f"{shown}{', synchronised' if synchronised else ''}")


def _synchronised() -> bool | None:
    """As systemd says, where it runs."""
    if not Path("/run/systemd/system").exists():
        return None
    return Path("/run/systemd/timesync/synchronized").exists() or None
