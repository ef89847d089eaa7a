"""Reads the documentation: its pages, their code blocks, and the remarks that say what a test does with a block.

A remark stands on the line before a block:

    <!-- test: skip, why -->         leave it out
    <!-- test: source PATH -->       do not run it: each of its paragraphs must stand in that file, in this order
    <!-- test: file NAME -->         write it to this file, in the page's shell session; `NAME, anew` replaces the file;
                                     `NAME, and here` also runs it with the page's Python blocks
    <!-- test: run -->               a shell block: run it in the page's session, and it must succeed
    <!-- test: output -->            what the run block before it prints to stdout; `...` stands for anything
    <!-- test: says -->              lines that the session's commands print to stderr; `...` stands for anything
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

__all__ = ("PAGES", "ROOT", "Block", "blocks_of", "matches", "page_id", "without_code")

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]

_REMARK = re.compile(r"<!-- test: (?P<kind>\w+)[ ,]*(?P<rest>.*?) *-->")
_FENCE = re.compile(r"^```(?P<language>\w*)\s*$")
KINDS = ("skip", "source", "file", "run", "output", "says")


@dataclass(frozen=True, kw_only=True)
class Block:
    page: Path
    line: int
    """Of its first line of code."""
    language: str
    code: str
    kind: str = ""
    rest: str = ""

    @property
    def where(self) -> str:
        return f"{page_id(self.page)}:{self.line}"


def page_id(page: Path) -> str:
    return str(page.relative_to(ROOT))


def blocks_of(page: Path) -> list[Block]:
    found: list[Block] = []
    lines = page.read_text().splitlines()
    remark: re.Match[str] | None = None
    number = 0
    while number < len(lines):
        text = lines[number]
        number += 1
        fence = _FENCE.match(text)
        if fence is None:
            if text.strip():
                remark = _REMARK.fullmatch(text.strip())
            continue
        start = number
        while lines[number] != "```":
            number += 1
        kind, rest = (remark["kind"], remark["rest"]) if remark else ("", "")
        assert kind in ("", *KINDS), f"{page_id(page)}:{start}: unknown remark {kind!r}"
        code = "\n".join(lines[start:number])
        found.append(Block(page=page, line=start + 1, language=fence["language"], code=code, kind=kind, rest=rest))
        remark = None
        number += 1
    return found


def without_code(page: Path) -> str:
    """The page's prose: no code blocks, no code in lines, no comments."""
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)
    text = re.sub(r"<!--.*?-->", "", text, flags=re.DOTALL)
    return re.sub(r"`[^`\n]*`", "", text)


def matches(expected: str, actual: str) -> bool:
    """The same text; `...` in what is expected stands for anything, spaces at the end of lines for nothing."""
    pattern = ".*?".join(re.escape(part) for part in _trimmed(expected).split("..."))
    return re.fullmatch(pattern, _trimmed(actual), flags=re.DOTALL) is not None


def _trimmed(text: str) -> str:
    return "\n".join(line.rstrip() for line in text.strip("\n").splitlines())
