"""`tidegate doctor`: checks the requirements of an app on this machine, and says how to meet them."""

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

MIN_FREE_BYTES: Final = 1 << 30
"""Less free space than this for the data directory gives a warning."""
_SECONDS: Final = 3.0
_DRIFT: Final = 5.0
"""How far this machine's clock and a broker's may differ, in seconds."""
_PYTHON_VERSIONS: Final = ((3, 11), (3, 14))


class Finding(NamedTuple):
    what: str
    verdict: Verdict
    says: str
    """The finding, and what to do about a problem."""


def examine(resolved: Resolved) -> Iterator[Finding]:
    settings = resolved.settings
    checks: tuple[Callable[[Settings], Finding], ...] = (_python, _java, _disk, _broker, _clock)
    for check in checks:
        yield check(settings)
    yield _port(settings, explicit=resolved.sources["api"] != "default")


def _python(_: Settings) -> Finding:
    first, last = _PYTHON_VERSIONS
    found = f"{platform.python_version()} at {sys.executable}"
    if first <= sys.version_info < last:
        return Finding("Python", "ok", found)
    return Finding("Python", "error", f"{found}: Tidegate runs on 3.11 to 3.13")


def _java(_: Settings) -> Finding:
    """Only `tidegate kafka` and Spark need Java."""
    java = shutil.which("java")
    if java is None:
        return Finding(
            "Java", "warning", "none; 'tidegate kafka start' and Spark jobs need 17 or newer, services do not"
        )
    try:
        output = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=20, check=False).stderr  # noqa: S603
    except (OSError, subprocess.TimeoutExpired) as error:
        return Finding("Java", "warning", f"{java} does not run: {error}")
    version = output.split('"')[1] if '"' in output else output.strip()[:80]
    major = version.split(".")[0]
    if major.isdecimal() and int(major) < 17:
        return Finding("Java", "warning", f"{version} at {java}; 'tidegate kafka start' and Spark need 17 or newer")
    return Finding("Java", "ok", f"{version} at {java}")


def _disk(settings: Settings) -> Finding:
    directory = settings.data.absolute()
    while not directory.exists():
        directory = directory.parent
    free = shutil.disk_usage(directory).free
    shown = f"{free / 1e9:,.1f} GB free for {settings.data}"
    if not _writable(directory):
        return Finding("Disk", "error", f"{directory} is not writable: give this user access, or choose --data DIR")
    if free < MIN_FREE_BYTES:
        return Finding("Disk", "warning", f"{shown}: a worker stops when the disk is full")
    return Finding("Disk", "ok", shown)


def _writable(directory: Path) -> bool:
    probe = directory / f".tidegate-doctor-{time.time_ns()}"
    try:
        probe.write_bytes(b"")
        probe.unlink()
    except OSError:
        return False
    return True


def _broker(settings: Settings) -> Finding:
    if not on_kafka(settings):
        return Finding("Broker", "ok", "not needed: the log is embedded in the worker (embedded://)")
    from tidegate_app.kafka.probe import answers

    addresses = settings.broker.removeprefix("kafka://").split(",")
    if settings.kafka_tls == "on" or settings.kafka_sasl_mechanism:
        open_ = [address for address in addresses if _listens(address)]
        if open_:
            return Finding(
                "Broker", "ok", f"{', '.join(open_)} can be reached; login and TLS are checked when a worker starts"
            )
    elif silent := [address for address in addresses if not answers(address, _SECONDS)]:
        return Finding(
            "Broker",
            "error" if len(silent) == len(addresses) else "warning",
            f"{', '.join(silent)} does not respond. Is it running ('tidegate kafka start'), and is --broker right?",
        )
    else:
        return Finding("Broker", "ok", f"{', '.join(addresses)} responds")
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
        return Finding("API port", "ok", "the API is disabled (--api off)")
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
    """Processing-time timers, TTLs and web tokens depend on the clock. Only jumps and missing synchronization can be
    detected locally."""
    year = time.gmtime().tm_year
    if year < 2024:
        return Finding("Clock", "error", f"the year is {year}: set the clock; timers and TTLs depend on it")
    before, started = time.time(), time.monotonic()
    time.sleep(0.05)
    drift = abs((time.time() - before) - (time.monotonic() - started))
    if drift > _DRIFT / 100:
        return Finding("Clock", "warning", f"it jumped by {drift * 1000:.0f} ms during the check: is it being set?")
    synchronized = _synchronized()
    shown = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime())
    if synchronized is False:
        return Finding("Clock", "warning", f"{shown}, not synchronized: start an NTP client")
    return Finding("Clock", "ok", f"{shown}{', synchronized' if synchronized else ''}")


def _synchronized() -> bool | None:
    """As reported by systemd; None without systemd."""
    if not Path("/run/systemd/system").exists():
        return None
    return Path("/run/systemd/timesync/synchronized").exists() or None
