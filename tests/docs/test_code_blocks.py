"""The code of the documentation runs, and does what the pages say."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import types
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from tests.docs.pages import PAGES, ROOT, Block, blocks_of, matches, page_id
from tests.docs.shell import program
from tidegate_app.kafka.broker import Broker

SESSION_SECONDS = 240
BROKER = "127.0.0.1:9092"
"""What pages call a broker; a session that uses one has its own, elsewhere."""


def _pages(*kinds: str, language: str = "") -> list[Path]:
    """Pages with such blocks."""
    return [
        page
        for page in PAGES
        if any(block.kind in kinds and (not language or block.language == language) for block in blocks_of(page))
    ]


@pytest.mark.parametrize("page", _pages("", language="python"), ids=page_id)
def test_python_blocks_run_in_their_order(page: Path) -> None:
    """The blocks of a page share a namespace. Functions called test_... are called, as pytest would."""
    name = f"page_{page.stem.lower()}"
    module = sys.modules[name] = types.ModuleType(name)
    try:
        for block in blocks_of(page):
            if block.language == "python" and (not block.kind or block.rest.endswith(", and here")):
                _run_python(block, module)
    finally:
        del sys.modules[name]


def _run_python(block: Block, module: types.ModuleType) -> None:
    # With the page's own line numbers, so that a traceback leads to the right place.
    code = compile("\n" * (block.line - 1) + block.code, str(block.page), "exec")
    before = set(vars(module))
    exec(code, vars(module))
    for name in [name for name in vars(module) if name.startswith("test_") and name not in before]:
        vars(module)[name]()


@pytest.mark.timeout(SESSION_SECONDS + 30)
@pytest.mark.parametrize("page", _pages("run"), ids=page_id)
def test_shell_blocks_run_as_one_session(page: Path, tmp_path: Path, private_kafka: Callable[[], Broker]) -> None:
    session = tmp_path / "session"
    session.mkdir()
    blocks = blocks_of(page)
    running = [block for block in blocks if block.kind in ("run", "file", "says")]
    broker = private_kafka().address if any(BROKER in block.code for block in running) else BROKER
    done = _run_session(running, session, tmp_path, broker)
    told = (tmp_path / "errors").read_text()
    assert done == 0, f"{page_id(page)}: a command failed\n{_so_far(running, tmp_path)}\n{told}"
    for block, following in pairwise(blocks):
        if following.kind == "output":
            assert block.kind == "run", f"{following.where}: there is no run block before it"
            printed = (tmp_path / f"output-{block.line}").read_text()
            assert matches(following.code, printed), f"{following.where}: it prints\n{printed}\n{told}"
    for block in blocks:
        if block.kind == "says":
            for line in block.code.splitlines():
                assert any(matches(line, said) for said in told.splitlines()), f"{block.where}: {line!r} not in\n{told}"


def _run_session(blocks: list[Block], session: Path, results: Path, broker: str) -> int:
    """All blocks in one shell; the stdout of each goes to a file of its own, all stderr to one. `tidegate` is there
    already, and need not be imported: `test_kills` and `test_cli` start it as anybody does."""
    script = "\n".join(
        [
            "set -euo pipefail",
            "trap 'jobs -p | xargs -r kill -9' EXIT",
            *(
                f"exec >{results}/output-{block.line}\n{_commands(block, results).replace(BROKER, broker)}"
                for block in blocks
            ),
        ]
    )
    environment = {name: value for name, value in os.environ.items() if not name.startswith("TIDEGATE_")}
    environment["PYTHONDONTWRITEBYTECODE"] = "1"
    with program() as directory, (results / "errors").open("wb") as errors:
        environment["PATH"] = f"{directory}:{Path(sys.executable).parent}:{environment['PATH']}"
        process = subprocess.Popen(
            ["bash", "-c", script], cwd=session, stdin=subprocess.DEVNULL, stderr=errors, env=environment
        )
        try:
            return process.wait(SESSION_SECONDS)
        except subprocess.TimeoutExpired:
            process.terminate()  # the trap ends what it has started
            process.wait(10)
            return -1


def _commands(block: Block, results: Path) -> str:
    if block.kind == "run":
        return block.code
    if block.kind == "says":  # a worker in the background says it in its time, and the next block may end it
        known = [max(line.split("..."), key=len).strip() for line in block.code.splitlines()]
        waits = (f"grep -qFe {shlex.quote(part)} {results}/errors && break; sleep 0.1" for part in known)
        return "\n".join(f"for _ in {{1..100}}; do {wait}; done" for wait in waits)
    name, _, how = block.rest.partition(", ")
    return f"cat {'>' if how == 'anew' else '>>'} {name} <<'END OF FILE'\n{block.code}\nEND OF FILE"


def _so_far(blocks: list[Block], results: Path) -> str:
    printed = ((block, results / f"output-{block.line}") for block in blocks)
    return "\n".join(f"{block.where}: {path.read_text()}" for block, path in printed if path.exists())


def _sources() -> list[Block]:
    return [block for page in PAGES for block in blocks_of(page) if block.kind == "source"]


@pytest.mark.parametrize("block", _sources(), ids=lambda block: block.where)
def test_code_that_is_shown_is_the_code_that_runs(block: Block) -> None:
    source = (ROOT / block.rest).read_text()
    position = 0
    for paragraph in _paragraphs(block.code):
        found = source.find(paragraph, position)
        assert found >= 0, f"{block.where}: {block.rest} does not have, here:\n{paragraph}"
        position = found + len(paragraph)


def _paragraphs(code: str) -> Iterator[str]:
    return (paragraph.strip("\n") for paragraph in code.split("\n\n") if paragraph.strip())


def test_few_blocks_are_skipped_and_each_gives_a_reason() -> None:
    skipped = [block for page in PAGES for block in blocks_of(page) if block.kind == "skip"]
    assert all(block.rest for block in skipped), [block.where for block in skipped]
    assert len(skipped) <= 5, [block.where for block in skipped]
