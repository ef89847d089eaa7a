"""The key explorer over a state of a million keys, over HTTP and in a headless Chromium. Prints figures.

python -m benchmarks.dashboard [--keys N] [--pictures DIR]      a worker with its API on the embedded log, and a client

1. Fill a log with a record for each key; let a worker handle it. 2. Over HTTP: pages one after the other, pages
from anywhere, prefixes. 3. The same in the browser, until the rows are on the page. 4. Choose a key, send a record for
it, and wait until the page shows the new value: at rest, and beside a stream of other records.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import shutil
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import uvloop
from playwright.async_api import Page, async_playwright

from benchmarks.embedded import fill
from benchmarks.http import Connection, handled, percentile, worker

KEYS = 1_000_000
PAGES = 200
LOOKS = 20
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
LIST = "/v1/services/counter/states/seen/keys"
PREFIXES = ("", "user-7", "user-77", "user-777", "user-7777", "user-77777", "nobody")
SECONDS = 60_000


def report(what: str, took: list[float]) -> None:
    print(f"{what}: p50 {percentile(took, 0.5):.1f} ms, p99 {percentile(took, 0.99):.1f} ms, "
          f"longest {1000 * max(took):.1f} ms ({len(took)} times)", flush=True)  # fmt: skip


# ---------------------------------------------------------------------------------------------------------------- HTTP


async def page_of(connection: Connection, query: str, took: list[float]) -> tuple[list[str], str | None]:
    began = time.perf_counter()
    status, body = await connection.ask("GET", f"{LIST}?{query}")
    took.append(time.perf_counter() - began)
    assert status == 200, body
    page = json.loads(body)
    return [item["key"] for item in page["items"]], page["cursor"]


async def over_http(port: int, keys: int) -> None:
    connection, chance = await Connection.open(port), random.Random(1)
    for limit in (50, 1000):
        took: list[float] = []
        seen, cursor = [], ""
        for _ in range(PAGES):
            found, following = await page_of(connection, f"limit={limit}&cursor={cursor}", took)
            seen += found
            if following is None:
                break
            cursor = following
        assert seen == sorted(seen)
        assert len(set(seen)) == len(seen)
        report(f"HTTP: a page of {limit} keys, by cursors", took)
    took = []
    for _ in range(PAGES):
        await page_of(connection, f"limit=50&start=user-{chance.randrange(keys)}", took)
    report("HTTP: a page of 50 keys, from anywhere", took)
    for prefix in PREFIXES:
        took = []
        for _ in range(LOOKS):
            found, _ = await page_of(connection, f"limit=50&prefix={prefix}", took)
            assert all(key.startswith(prefix) for key in found)
        report(f"HTTP: keys that begin with {prefix!r}", took)


# ------------------------------------------------------------------------------------------------------------- browser


@asynccontextmanager
async def browser(port: int, scheme: str) -> AsyncIterator[Page]:
    async with async_playwright() as playwright:
        chromium = await playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        try:
            page = await chromium.new_page(
                color_scheme="dark" if scheme == "dark" else "light", viewport={"width": 1280, "height": 900}
            )
            page.set_default_timeout(SECONDS)
            await page.goto(f"http://127.0.0.1:{port}")
            yield page
        finally:
            await chromium.close()


async def until(page: Page, condition: str, argument: object = None) -> None:
    """Wait until the condition holds; it is checked at every frame of the browser."""
    await page.wait_for_function(condition, arg=argument, polling="raf")


ALL = "() => document.querySelector('#keys li .key')?.textContent === 'user-0'"
FIRST = "() => document.querySelector('#keys li .key')"
PREFIXED = """(prefix) => { const rows = [...document.querySelectorAll('#keys li')];
    return prefix === 'nobody' ? rows.length === 1 && rows[0].className === 'empty'
        : rows.length > 0 && rows.every((row) => row.textContent.startsWith(prefix)); }"""


async def in_browser(port: int) -> None:
    took: list[float] = []
    for _ in range(5):
        async with browser(port, "light") as page:
            began = time.perf_counter()
            await until(page, FIRST)
            took.append(time.perf_counter() - began)
    report("Chromium: from the page's own files to the first keys", took)
    async with browser(port, "light") as page:
        await until(page, FIRST)
        for prefix in PREFIXES[1:]:
            took = []
            for _ in range(5):
                await page.fill("#prefix", "")
                await until(page, ALL)
                began = time.perf_counter()
                await page.fill("#prefix", prefix)
                await until(page, PREFIXED, prefix)
                took.append(time.perf_counter() - began)
            report(f"Chromium: keys that begin with {prefix!r}, typing pause of 150 ms included", took)
        await page.fill("#prefix", "")
        await until(page, ALL)
        took = []
        for number in range(1, LOOKS + 1):
            began = time.perf_counter()
            await page.evaluate("() => { const it = document.getElementById('keys'); it.scrollTop = it.scrollHeight; }")
            await until(page, "(count) => document.querySelectorAll('#keys li .key').length >= count", 50 * number + 50)
            took.append(time.perf_counter() - began)
        report("Chromium: scrolling to the end of the list, until the next page is there", took)


async def changes(port: int, key: str, what: str, pictures: Path | None) -> None:
    """The time from sending a record until its change is on the page."""
    connection, took = await Connection.open(port), list[float]()
    async with browser(port, "light") as page:
        await page.fill("#prefix", key)
        await until(page, PREFIXED, key)
        await page.locator("#keys li").first.click()
        shown = page.locator(".fact[data-state=seen] pre")
        await shown.wait_for()
        for _ in range(LOOKS):
            wanted = str(int(await shown.inner_text()) + 1)
            began = time.perf_counter()
            await send(connection, [key])
            await until(
                page, "(text) => document.querySelector('.fact[data-state=seen] pre').textContent === text", wanted
            )
            took.append(time.perf_counter() - began)
        report(f"Chromium: from sending a record to its change on the page, {what}", took)
    if pictures is not None:
        for scheme in ("light", "dark"):
            await picture(port, key, scheme, pictures)


async def picture(port: int, key: str, scheme: str, pictures: Path) -> None:
    async with browser(port, scheme) as page:
        await until(page, FIRST)
        await page.fill("#prefix", key[:-1])
        await until(page, PREFIXED, key[:-1])
        await page.locator("#keys li").first.click()
        await page.locator(".fact[data-state=seen] pre").wait_for()
        await page.wait_for_timeout(4000)
        await page.screenshot(path=pictures / f"dashboard-{scheme}.png", full_page=True)


async def send(connection: Connection, keys: list[str]) -> None:
    records = [{"value": {"liker": "user-0", "liked": key, "ts": 0}} for key in keys]
    status, body = await connection.ask("POST", "/v1/topics/likes/records", json.dumps({"records": records}).encode())
    assert status == 200, body


async def busily(port: int, keys: int) -> None:
    connection, chance = await Connection.open(port), random.Random(2)
    while True:
        await send(connection, [f"user-{chance.randrange(keys // 2)}" for _ in range(1000)])


# ---------------------------------------------------------------------------------------------------------------- both


async def measure(port: int, keys: int, pictures: Path | None) -> None:
    watch = await Connection.open(port)
    while (await watch.ask("GET", "/readyz"))[0] != 200 or await handled(watch) < keys:  # noqa: ASYNC110
        await asyncio.sleep(0.5)
    await asyncio.sleep(2)
    await over_http(port, keys)
    await in_browser(port)
    key = f"user-{keys - 1}"
    await changes(port, key, "at rest", pictures)
    watch = await Connection.open(port)  # the other connection was idle for too long
    before, began = await handled(watch), time.perf_counter()
    sending = asyncio.create_task(busily(port, keys))
    await changes(port, key, "beside other records", None)
    rate = (await handled(watch) - before) / (time.perf_counter() - began)
    sending.cancel()
    with suppress(asyncio.CancelledError):
        await sending
    print(f"(the others were {rate:,.0f} records per second)")


async def main(keys: int, pictures: Path | None) -> None:
    directory = Path(tempfile.mkdtemp(prefix="tidegate-dashboard-"))
    try:
        await fill(directory, keys, keys, each_once=True)
        async with worker(directory) as (port, _):
            await measure(port, keys, pictures)
    finally:
        shutil.rmtree(directory, ignore_errors=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="The key explorer over many keys.")
    parser.add_argument("--keys", type=int, default=KEYS)
    parser.add_argument("--pictures", type=Path, help="Where to put screenshots, light and dark.")
    given = parser.parse_args()
    uvloop.run(main(given.keys, given.pictures))
