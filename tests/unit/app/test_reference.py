from __future__ import annotations

from pathlib import Path

from tidegate_app.reference import fields, reference

PAGE = Path(__file__).parents[3] / "docs" / "configuration.md"


def test_the_reference_page_is_up_to_date() -> None:
    assert PAGE.read_text(encoding="utf-8") == reference(), "run: make docs"


def test_the_reference_page_has_every_setting() -> None:
    text = reference()

    assert [name for name in fields() if f"| `{name}` |" not in text] == []
