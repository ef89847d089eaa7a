"""The live screen: a snapshot of the board as a full-size frame on a terminal, or as a line elsewhere.

It overwrites itself on the normal screen buffer without hiding the cursor, so that a killed process leaves the terminal
usable. It is drawn in a thread: neither drawing nor a slow terminal blocks the event loop.
"""

from __future__ import annotations

import os
import shlex
import shutil
from collections.abc import Iterable
from datetime import UTC, datetime
from urllib.parse import quote

from rich import box
from rich.console import Console, ConsoleDimensions, RenderableType
from rich.control import Control
from rich.layout import Layout
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from examples.tinder_match.board import Snapshot
from examples.tinder_match.events import Match
from examples.tinder_match.generator import SPEED
from tidegate.settings import Settings

__all__ = ("LINES", "Screen", "line", "picture", "sparkline")

LINES = 22
"""A terminal with fewer lines gets no frame."""
_WIDTH = 70
_HIGH = 18
"""The number of lines from which the middle of the frame uses a spacious layout."""
_LOVE = "bright_magenta"
_COLOURS = {"likes": "bright_cyan", "matches": _LOVE, "commits": "bright_green"}
_BARS = "▁▂▃▄▅▆▇█"


class Screen:
    """Draws frames on a console."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._size: ConsoleDimensions | None = None

    @staticmethod
    def fits(console: Console) -> bool:
        """Whether this is a terminal, and large enough."""
        large = console.height >= LINES and console.width >= _WIDTH
        return large and console.is_terminal and not console.is_dumb_terminal

    def draw(self, snapshot: Snapshot) -> None:
        console, size = self._console, self._console.size
        with console:  # one write for all of it: no flicker
            if size != self._size:
                self._size = size
                console.clear()
            console.control(Control.home())
            console.print(picture(snapshot, size.width, size.height - 1), height=size.height - 1, no_wrap=True)


def line(snapshot: Snapshot) -> str:
    """A short form, for a file or a pipe."""
    latest = _couple(snapshot.latest[0]).plain if snapshot.latest else "none yet"
    return (
        f"{_duration(snapshot.uptime)}  {_day(snapshot.event_time)}  "
        f"likes {snapshot.likes:,} ({_now(snapshot, 'likes'):,.0f}/s)  "
        f"matches {snapshot.matches:,} ({_now(snapshot, 'matches'):,.0f}/s)  "
        f"commits {_now(snapshot, 'commits'):,.0f}/s  latest {latest}"
    )


# -- the picture -----------------------------------------------------------------------------------------------------
def picture(snapshot: Snapshot, width: int, height: int) -> Layout:
    """The complete frame in this size."""
    root = Layout()
    root.split_column(
        Layout(_header(snapshot), size=2),
        Layout(_rates(snapshot, width), size=5),
        body := Layout(),
        Layout(_footer(snapshot, width), size=4),
    )
    rows = height - 11
    body.split_row(Layout(_latest(snapshot, rows - 2), ratio=5), right := Layout(ratio=4))
    columns = 2 if rows < _HIGH else 1
    tasks = -(-len(snapshot.tasks) // columns) + 2
    popular = min((rows - tasks) // 2, 14)
    inside = width * 4 // 9 - 4
    right.split_column(
        Layout(_tasks(snapshot, columns, inside // columns), size=tasks),
        Layout(_popular(snapshot, popular - 2, inside), size=popular),
        Layout(_inbox(snapshot, rows - tasks - popular - 2)),
    )
    return root


def _header(snapshot: Snapshot) -> RenderableType:
    recovery = snapshot.recovery
    grid = Table.grid(expand=True)
    grid.add_column(no_wrap=True, ratio=1)
    grid.add_column(justify="right", no_wrap=True)
    grid.add_row(
        Text.assemble(
            (" ♥ Tidegate ", f"bold white on {_LOVE}"),
            (" tinder", "bold"),
            (f"  {snapshot.url or snapshot.directory}", "dim"),
        ),
        Text.assemble((_time(snapshot.event_time), "bold bright_yellow"), ("  event time ", "dim")),
    )
    grid.add_row(
        Text.assemble(
            (" recovered ", "dim"),
            str(recovery.keys),
            (", replayed ", "dim"),
            f"{recovery.replayed:,} records",
            (", ", "dim"),
            f"{recovery.milliseconds:,.0f} ms",
        ),
        Text.assemble(("up ", "dim"), _duration(snapshot.uptime), (f"  pid {os.getpid()} ", "dim")),
    )
    return grid


def _rates(snapshot: Snapshot, width: int) -> RenderableType:
    grid = Table.grid(expand=True, padding=(0, 1))
    grid.add_column(width=8)
    grid.add_column(width=8, justify="right")
    grid.add_column(ratio=1, no_wrap=True)
    grid.add_column(width=18, justify="right")
    totals = {"likes": f"{snapshot.likes:,} so far", "matches": f"{snapshot.matches:,} so far", "commits": ""}
    for name, total in totals.items():
        colour = _COLOURS[name]
        rate = f"{_now(snapshot, name):,.0f}/s"
        spark = sparkline(snapshot.rates[name], max(1, width - 42))
        grid.add_row(Text(name, style=f"bold {colour}"), Text(rate, style="bold"), Text(spark, style=colour), total)
    return _panel(grid, f"Per second, which is {SPEED // 3600} hours of event time")


def _latest(snapshot: Snapshot, rows: int) -> RenderableType:
    grid = Table.grid(expand=True)
    grid.add_column(no_wrap=True)
    grid.add_column(justify="right", no_wrap=True)
    for match in snapshot.latest[:rows]:
        grid.add_row(_couple(match), Text(_day(match.at), style="dim"))
    if not snapshot.latest:
        grid.add_row(Text("Nobody has matched yet.", style="dim"), "")
    return _panel(grid, "Latest matches", _LOVE)


def _tasks(snapshot: Snapshot, columns: int, width: int) -> RenderableType:
    grid = Table.grid(expand=True, padding=(0, 1))
    for _ in range(columns):
        grid.add_column()
        grid.add_column(ratio=1, no_wrap=True)
        grid.add_column(justify="right")
    most = max((task.rate for task in snapshot.tasks), default=0)
    cells: list[Text] = []
    for task in snapshot.tasks:
        behind = Text(f"{task.behind:,} behind", style="yellow") if task.behind else Text(f"{task.rate:,.0f}/s")
        cells += [Text(str(task.number), style="dim"), _bar(task.rate, most, width - 11, "bright_cyan"), behind]
    for start in range(0, len(cells), 3 * columns):
        grid.add_row(*cells[start : start + 3 * columns])
    return _panel(grid, "Partitions of likes")


def _popular(snapshot: Snapshot, rows: int, width: int) -> RenderableType:
    grid = Table.grid(expand=True, padding=(0, 1))
    grid.add_column(width=14, no_wrap=True)
    grid.add_column(ratio=1, no_wrap=True)
    grid.add_column(justify="right")
    most = snapshot.popular[0][1] if snapshot.popular else 0
    for person, count in snapshot.popular[:rows]:
        grid.add_row(person, _bar(count, most, width - 22, _LOVE), f"{count:,}")
    return _panel(grid, "Most matches")


def _inbox(snapshot: Snapshot, rows: int) -> RenderableType:
    if snapshot.person is None or snapshot.inbox is None:
        return _panel(Text("Nobody's yet.", style="dim"), "Inbox")
    newest = sorted(snapshot.inbox.matches.items(), key=lambda item: -item[1])
    grid = Table.grid(expand=True)
    grid.add_column(no_wrap=True)
    grid.add_column(justify="right", no_wrap=True)
    for other, at in newest[:rows]:
        grid.add_row(Text.assemble(("♥ ", _LOVE), other), Text(_day(at), style="dim"))
    return _panel(grid, f"Inbox of {snapshot.person}: {snapshot.inbox.unread:,} unread", "bright_yellow")


def curl(url: str, person: str) -> str:
    """Selects the person whose inbox is shown."""
    return f"curl -s {url}/v1/services/inbox/states/unread/keys/{quote(person, safe='')}"


def _footer(snapshot: Snapshot, width: int) -> RenderableType:
    app, person = "examples.tinder_match:app", shlex.quote(snapshot.person or "Ann Ash")
    before = [] if shutil.which("tidegate") else ["source .venv/bin/activate"]
    if (data := snapshot.directory.parent) != Settings.data:
        before.append(f"export TIDEGATE_DATA={shlex.quote(str(data))}")
    hints = (
        (f"kill -9 {os.getpid()}", "and run it again: nothing is lost, nothing is doubled"),
        (f"tidegate tail {app} matches", "what is committed, as it comes"),
        (curl(snapshot.url, snapshot.person or "Ann Ash"), "live state")
        if snapshot.url
        else (f"tidegate state get {app} inbox unread {person}", "live state"),
    )
    title = " Try in another terminal"
    while before and len(f"{title}, after {'; '.join(before)}:") > width:
        before.pop(0)
    text = Text(f"{title}, after {'; '.join(before)}:" if before else f"{title}:", style="dim")
    for command, what in hints:
        text.append(f"\n {command}", style="not dim bright_green")
        if len(command) + len(what) + 4 <= width:
            text.append(f"  {what}", style="dim")
    return text


def _panel(content: RenderableType, title: str, colour: str = "bright_black") -> Panel:
    return Panel(content, title=Text(title, style="bold"), title_align="left", border_style=colour, box=box.ROUNDED)


# -- parts of it -----------------------------------------------------------------------------------------------------
def sparkline(values: Iterable[float], width: int) -> str:
    """The last `width` values as bars; the highest one fills its line."""
    shown = list(values)[-width:]
    most = max(shown, default=0) or 1
    return "".join(_BARS[min(len(_BARS) - 1, round(value / most * (len(_BARS) - 1)))] for value in shown).rjust(width)


def _bar(value: float, most: float, width: int, colour: str) -> Text:
    length = round(value / most * max(1, width)) if most else 0
    return Text("━" * length, style=colour)


def _couple(match: Match) -> Text:
    return Text.assemble(match.first, (" ♥ ", _LOVE), match.second)


def _now(snapshot: Snapshot, name: str) -> float:
    """A rate, smoothed over three seconds."""
    newest = snapshot.rates[name][-3:]
    return sum(newest) / len(newest) if newest else 0.0


def _duration(seconds: float) -> str:
    minutes, seconds = divmod(int(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02}:{seconds:02}"


def _time(at: int) -> str:
    return f"{datetime.fromtimestamp(at / 1000, UTC):%-d %b %Y, %H:%M}"


def _day(at: int) -> str:
    return f"{datetime.fromtimestamp(at / 1000, UTC):%-d %b %Y}"
