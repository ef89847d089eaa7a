"""The screen shows what there is, fills the terminal and never more."""

from __future__ import annotations

from io import StringIO
from pathlib import Path

import pytest
from rich.cells import cell_len
from rich.console import Console

from examples.tinder_match.board import Recovery, Snapshot, TaskLine
from examples.tinder_match.events import DAY, Match
from examples.tinder_match.fold import Inbox
from examples.tinder_match.screen import Screen, line, picture, sparkline
from tidegate.query.key_count import KeyCount

VALENTINE = 1_707_868_800_000


def snapshot(*, empty: bool = False) -> Snapshot:
    latest = [
        Match(pair="Ann Ash|Bob Birch", first="Ann Ash", second="Bob Birch", at=VALENTINE + 3 * DAY),
        Match(pair="Cem Cole|Eva Ek", first="Eva Ek", second="Cem Cole", at=VALENTINE),
    ]
    return Snapshot(
        directory=Path(".tidegate/tinder"),
        recovery=Recovery(keys=KeyCount(12_345_678, exact=False), replayed=1234, milliseconds=56.7),
        uptime=3725,
        event_time=VALENTINE,
        likes=0 if empty else 1_234_567,
        matches=0 if empty else 98_765,
        rates={
            name: [] if empty else [float(value) for value in range(300)] for name in ("likes", "matches", "commits")
        },
        latest=[] if empty else latest * 40,
        popular=[] if empty else [(f"Person {number}", 60 - number) for number in range(60)],
        tasks=[] if empty else [TaskLine(number=number, rate=125, behind=number // 3) for number in range(4)],
        person=None if empty else "Ann Ash",
        inbox=None if empty else Inbox({"Bob Birch": VALENTINE, "Cem Cole": VALENTINE + DAY}, 2),
    )


def drawn(shown: Snapshot, width: int, height: int) -> list[str]:
    console = Console(file=StringIO(), width=width, height=height, color_system=None, force_terminal=True)
    with console.capture() as capture:
        console.print(picture(shown, width, height), height=height)
    return capture.get().splitlines()


@pytest.mark.parametrize(("width", "height"), [(80, 23), (70, 21), (100, 30), (140, 44), (250, 80)])
@pytest.mark.parametrize("empty", [False, True])
def test_the_picture_is_as_large_as_the_terminal(width: int, height: int, empty: bool) -> None:
    lines = drawn(snapshot(empty=empty), width, height)
    assert len(lines) == height
    assert max(map(cell_len, lines)) <= width


def test_the_screen_shows_the_current_counts() -> None:
    text = "\n".join(drawn(snapshot(), 140, 44))
    for told in (
        ".tidegate/tinder",
        "about 12,345,678 keys",
        "1,234 records",
        "57 ms",
        "1:02:05",
        "14 Feb 2024",
        "1,234,567 so far",
        "298/s",
        "Ann Ash ♥ Bob Birch",
        "17 Feb 2024",
        "1 behind",
        "Inbox of Ann Ash: 2 unread",
        "kill -9",
        "tidegate state get examples.tinder_match:app inbox unread 'Ann Ash'",
    ):
        assert told in text


def test_drawing_again_draws_over_what_is_there() -> None:
    file = StringIO()
    screen = Screen(Console(file=file, width=80, height=24, force_terminal=True))
    screen.draw(snapshot())
    first = file.tell()
    screen.draw(snapshot())
    again = file.getvalue()[first:]
    assert "\x1b[2J" in file.getvalue()[:first]
    assert "\x1b[2J" not in again
    assert again.startswith("\x1b[H")
    assert "\x1b[?25l" not in file.getvalue(), "the cursor stays: nobody could show it again after kill -9"


@pytest.mark.parametrize(("width", "height", "fits"), [(80, 24, True), (60, 24, False), (80, 12, False)])
def test_a_small_terminal_gets_lines_instead(width: int, height: int, fits: bool) -> None:
    console = Console(file=StringIO(), width=width, height=height, force_terminal=True)
    assert Screen.fits(console) is fits
    assert not Screen.fits(Console(file=StringIO(), width=80, height=24))


def test_a_line_is_a_short_summary() -> None:
    assert line(snapshot()) == (
        "1:02:05  14 Feb 2024  likes 1,234,567 (298/s)  matches 98,765 (298/s)  commits 298/s  "
        "latest Ann Ash ♥ Bob Birch"
    )
    assert line(snapshot(empty=True)).endswith("latest none yet")


def test_a_sparkline_shows_the_newest_values_to_scale() -> None:
    assert sparkline([0, 1, 2, 3, 4, 5, 6, 7], 8) == "▁▂▃▄▅▆▇█"
    assert sparkline([100, 0, 7], 2) == "▁█"
    assert sparkline([1], 3) == "  █"
    assert sparkline([], 3) == "   "
