"""The dashboard in a real browser: what it shows is what the app does, at once, and nothing comes from elsewhere."""

from __future__ import annotations

import os
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from playwright.async_api import Page, async_playwright, expect

from tests.unit.api.support import Served, make_app, served

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
SECONDS = 60_000
TOKEN = "everything-is-allowed"

pytestmark = pytest.mark.skipif(
    CHROMIUM is None and "CI" not in os.environ,
    reason="needs Chromium or Google Chrome on PATH: apt-get install chromium",
)


@asynccontextmanager
async def opened(town: Served, scheme: str = "light") -> AsyncIterator[Page]:
    """The page, whose console must stay silent and whose requests must stay here."""
    complaints: list[str] = []
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        try:
            page = await browser.new_page(color_scheme="dark" if scheme == "dark" else "light")
            page.set_default_timeout(SECONDS)
            page.on("pageerror", lambda error: complaints.append(str(error)))
            page.on("console", lambda message: complaints.append(message.text) if message.type == "error" else None)
            page.on("request", lambda request: complaints.append(request.url) if not _ours(request.url, town) else None)
            await page.goto(town.server.url)
            yield page
        finally:
            await browser.close()
    assert [text for text in complaints if "401" not in text] == []


def _ours(url: str, town: Served) -> bool:
    return url.startswith((town.server.url, "data:"))


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_the_dashboard_shows_services_tasks_keys_and_changes(tmp_path: Path, scheme: str) -> None:
    async with served(tmp_path, store="rocksdb", api_timeout=60) as town:
        await town.visited("ann", "bob", place="<img src=x onerror=alert(1)>")
        async with opened(town, scheme) as page:
            await expect(page.locator("#app")).to_have_text("town", timeout=SECONDS)
            await expect(page.locator("#graph .service")).to_have_count(3, timeout=SECONDS)
            await expect(page.locator("#services tr[data-service=greeter] td").nth(1)).to_have_text(
                "4", timeout=SECONDS
            )
            await expect(page.locator("#workers .chip")).to_have_count(16, timeout=SECONDS)
            await expect(page.locator("#live")).to_have_class("live on", timeout=SECONDS)
            background = await page.evaluate("getComputedStyle(document.body).backgroundColor")
            assert background == ("rgb(12, 19, 25)" if scheme == "dark" else "rgb(245, 247, 248)")

            await page.locator("#keys li", has_text="ann").click()
            seen = page.locator(".fact[data-state=seen] pre")
            await expect(seen).to_have_text("1", timeout=SECONDS)
            assert await page.locator("#actor", has_text="hidden").count() == 0
            await town.visited("ann")
            await expect(seen).to_have_text("2", timeout=SECONDS)
            row = page.locator("#keys li", has_text="ann")
            await expect(row.locator(".preview")).to_have_text("2", timeout=SECONDS)
            await expect(page.locator(".fact[data-state=places] pre")).to_contain_text('"home": 1', timeout=SECONDS)
            await expect(page.locator(".log li", has_text="seen")).to_have_count(1, timeout=SECONDS)

            await page.fill("#prefix", "bo")
            await expect(page.locator("#keys li")).to_have_count(1, timeout=SECONDS)


async def test_a_button_takes_a_savepoint_that_shows_keys_at_that_moment(tmp_path: Path) -> None:
    async with served(tmp_path, store="rocksdb", api_timeout=60) as town:
        await town.visited("ann")
        async with opened(town) as page:
            await page.fill("#savepoint", "before")
            await page.click("#takesavepoint")
            await expect(page.locator("#taking")).to_contain_text("is complete", timeout=SECONDS)
            await expect(page.locator("#cuts td", has_text="before")).to_have_count(1, timeout=SECONDS)
            await town.visited("ann")
            await page.select_option("#asof", "before")
            await page.locator("#keys li", has_text="ann").click()
            await expect(page.locator(".fact[data-state=seen] pre")).to_have_text("1", timeout=SECONDS)
            await expect(page.locator("#actor", has_text="bye")).to_have_count(1, timeout=SECONDS)  # its timer, then
            assert await page.locator(".log").count() == 0


async def test_with_tokens_the_page_asks_for_a_token(tmp_path: Path) -> None:
    app = make_app(api_tokens=f"{TOKEN} ops state:read:*")
    async with served(tmp_path, app, token=TOKEN) as town, opened(town) as page:
        await expect(page.locator("#login")).to_be_visible(timeout=SECONDS)
        await page.fill("#token", TOKEN)
        await page.click("#login button")
        await expect(page.locator("#graph .service")).to_have_count(3, timeout=SECONDS)
