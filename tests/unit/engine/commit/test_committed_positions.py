"""The committed positions of tasks, and their lag."""

from __future__ import annotations

from tidegate import App, Context
from tidegate.engine.commit.committed_positions import read_committed
from tidegate.engine.formats.commit_marker import CommitMarker, InputMark, encode_marker
from tidegate.engine.topology.plan import Plan
from tidegate.logs.base import TopicPartition
from tidegate.state.layout import MARKER
from tidegate.testing.memory_log import MemoryLog
from tidegate.time.clock import MAX_TIME

app = App("committed", partitions=1)
words = app.topic("words", value_type=str)
WORDS = TopicPartition("words", 0)


@app.process(words)
async def quick(ctx: Context, word: str) -> None: ...


@app.process(words)
async def slow(ctx: Context, word: str) -> None: ...


@app.process(words)
async def new(ctx: Context, word: str) -> None: ...


def marker(position: int, *, unfinished: tuple[int, ...] = (), watermark: int = MAX_TIME) -> bytes:
    mark = InputMark(position=position, unfinished=list(unfinished))
    return encode_marker(CommitMarker(lineage="x", run="1", inputs={"words:0": mark}, watermark=watermark))


async def test_services_that_share_a_partition_have_separate_positions() -> None:
    definition, log = app.define(), MemoryLog()
    plan = Plan(definition.id, definition.services, definition.topics, definition.resolve().settings, {})
    await log.create(plan.specs)
    writer = await log.writer()
    await writer.append({WORDS: [(b"k", b'"w"', 0, ())] * 5})
    changelogs = {task.id: task.changelog for task in plan.tasks}
    await writer.append({changelogs["quick.0"]: [(MARKER, marker(5), 0, ())]})
    await writer.append({changelogs["slow.0"]: [(MARKER, marker(4, unfinished=(2,), watermark=7), 0, ())]})

    committed, ends = await read_committed(log, plan.tasks)

    assert ends == {WORDS: 6}, "the transaction has a marker"
    found = {name: (task.lag(ends), task.unfinished, task.finished(ends)) for name, task in committed.items()}
    assert found == {"quick.0": (0, 0, True), "slow.0": (4, 1, False), "new.0": (6, 0, False)}
    assert not committed["quick.0"].finished({WORDS: 7})
