"""Links in the documentation lead somewhere."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.docs.pages import PAGES, ROOT, page_id, without_code

_MARKDOWN = re.compile(r"\[[^\]]*\]\(\s*<?([^)\s>]+)>?[^)]*\)")
_HTML = re.compile(r"(?:src|href|srcset)=\"([^\"]+)\"")
_HEADING = re.compile(r"^#{1,6} +(.+?) *#*$", re.MULTILINE)


def links_of(page: Path) -> list[str]:
    text = without_code(page)
    return [*_MARKDOWN.findall(text), *_HTML.findall(text)]


def anchors_of(page: Path) -> set[str]:
    """As GitHub makes them from headings."""
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)
    anchors: set[str] = set()
    for heading in _HEADING.findall(text):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower()
        anchor = base = re.sub(r"[^\w\- ]", "", plain).strip().replace(" ", "-")
        number = 0
        while anchor in anchors:
            number += 1
            anchor = f"{base}-{number}"
        anchors.add(anchor)
    return anchors


@pytest.mark.parametrize(
    "page", [*PAGES, *(ROOT / name for name in ("CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md"))], ids=page_id
)
def test_links_lead_to_files_and_headings_that_exist(page: Path) -> None:
    for link in links_of(page):
        if re.match(r"[a-z]+:", link):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), f"{page_id(page)}: {link} leads nowhere"
        assert target.is_relative_to(ROOT), f"{page_id(page)}: {link} leads out of the project"
        if anchor:
            assert anchor in anchors_of(target), f"{page_id(page)}: {link}: no such heading"


def test_every_page_can_be_reached_from_the_readme() -> None:
    reached: set[Path] = set()
    waiting = [ROOT / "README.md"]
    while waiting:
        page = waiting.pop()
        if page in reached:
            continue
        reached.add(page)
        for link in links_of(page):
            target = (page.parent / link.partition("#")[0]).resolve()
            if target.suffix == ".md" and target.exists():
                waiting.append(target)
    assert {page_id(page) for page in PAGES} <= {page_id(page) for page in reached}
