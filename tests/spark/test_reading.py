"""State and changes as tables, SQL over all of it, and the code of the documentation."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import pytest

from examples.tinder_match.app import app as tinder
from examples.tinder_match.app import likes
from examples.tinder_match.events import DAY, Like
from examples.tinder_match.fold import expected
from examples.tinder_match.generator import LikeStream, Origin
from examples.tinder_match.pipeline import collect, people, reading, windows
from examples.tinder_match.pipeline.report import report
from tests.spark.support import ran
from tidegate import TTL, App, Context, Default, EventTime, ListState, MapState, ValueState
from tidegate.errors import UnknownNameError, UsageError
from tidegate_spark import read_changelog, read_table, register_views, run_job, stream_changelog
from tidegate_spark.sql import explained, sql_job

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Visit(msgspec.Struct):
    who: int
    page: str
    at: int


class Seen(msgspec.Struct):
    count: int
    last: str = ""


class Pages:
    """An app with a state of each kind."""

    def __init__(self) -> None:
        self.id = f"p{uuid.uuid4().hex[:8]}"
        self.app = App(self.id, partitions=2, time=EventTime("at"))
        self.visits = self.app.topic("visits", value_type=Visit, key="who", key_type=int)
        self.hourly = self.app.topic("hourly", value_type=dict, time=EventTime())

        @self.app.process(self.visits)
        async def visitor(
            ctx: Context,
            visit: Visit,
            seen: ValueState[Seen | None],
            pages: MapState[str, int],
            trail: ListState[str],
            recent: Annotated[ValueState[str], Default(""), TTL(days=1)],
        ) -> None:
            if visit.page == "forget":
                seen.clear()
                return
            seen.value = Seen(count=(seen.value.count if seen.value else 0) + 1, last=visit.page)
            pages[visit.page] = pages.get(visit.page, 0) + 1
            trail.append(visit.page)
            recent.value = visit.page


VISITS = [Visit(who=n % 5, page=f"/{n % 3}", at=1_700_000_000_000 + n * 1000) for n in range(40)]


def test_a_state_is_read_as_a_table_from_its_changelog(spark: SparkSession, tmp_path: Path) -> None:
    pages, flags = Pages(), {"data": tmp_path}
    ran(pages.app, flags, (pages.visits, VISITS))
    ran(pages.app, flags, (pages.visits, [Visit(who=4, page="forget", at=VISITS[-1].at)]))

    latest = read_changelog(spark, pages.app, "visitor", "seen", flags=flags)
    assert {row.key: (row.value.count_, row.value.last) for row in _renamed(latest)} == {
        who: (8, [v.page for v in VISITS if v.who == who][-1]) for who in range(4)
    }
    entries = read_changelog(spark, pages.app, "visitor", "pages", flags=flags).collect()
    assert {(row.key, row.entry): row.value for row in entries} == _counted()
    items = read_changelog(spark, pages.app, "visitor", "trail", flags=flags).orderBy("key", "index").collect()
    assert [row.value for row in items if row.key == 2] == [v.page for v in VISITS if v.who == 2]
    recent = read_changelog(spark, pages.app, "visitor", "recent", flags=flags).collect()
    assert {row.value for row in recent} <= {"/0", "/1", "/2"}
    assert all(row.expires_at is not None for row in recent)

    changes = stream_changelog(spark, pages.app, "visitor", "seen", flags=flags)
    found: list[Any] = []
    query = changes.writeStream.foreachBatch(lambda frame, _n: found.extend(frame.collect()))
    query.option("checkpointLocation", str(tmp_path / "c")).trigger(availableNow=True).start().awaitTermination()
    assert [row.key for row in found if row.deleted] == [4]
    assert {row.key for row in found} == set(range(5))

    with pytest.raises(UnknownNameError, match="of service 'visitor'"):
        read_changelog(spark, pages.app, "visitor", "sene", flags=flags)


def _renamed(frame: Any) -> list[Any]:
    """A Row is a tuple, whose count is a method."""
    return frame.selectExpr("key", "struct(value.count as count_, value.last) as value").collect()  # type: ignore[no-any-return]


def _counted() -> dict[tuple[int, str], int]:
    found: dict[tuple[int, str], int] = {}
    for visit in VISITS:
        found[visit.who, visit.page] = found.get((visit.who, visit.page), 0) + 1
    return found


def test_sql_queries_and_follows(spark: SparkSession, tmp_path: Path) -> None:
    pages, flags = Pages(), {"data": tmp_path}
    ran(pages.app, flags, (pages.visits, VISITS), (pages.hourly, []))
    tumbling = "select window.start as start, count(*) as visits from visits group by window(event_time, '10 seconds')"
    job = sql_job(spark, pages.app, tumbling, "visits_per_ten", key=("start",), flags=flags)
    run_job(spark, pages.app, job, once=True, flags=flags)
    rows = read_table(spark, pages.app, "visits_per_ten", flags=flags).collect()
    assert sorted(row.visits for row in rows) == [10, 10, 10, 10]

    session = (
        "select to_json(struct(who, session_window.start as start, count(*) as visits)) as value from visits "
        "group by who, session_window(event_time, '6 seconds')"
    )
    job = sql_job(spark, pages.app, session, "hourly", name="sessions", flags=flags)
    run_job(spark, pages.app, job, once=True, flags=flags)
    register_views(spark, pages.app, flags=flags)
    asked = "select get_json_object(value, '$.visits') as visits, count(*) as n from hourly group by 1"
    closed = explained(lambda: spark.sql(asked)).collect()
    assert closed == []  # each visits every five seconds: no session has ended, and none that is open is told

    joined = "select v.who, count(*) as n from visits v join visits_per_ten t on v.event_time >= t.start group by v.who"
    assert len(spark.sql(joined).collect()) == 5
    with pytest.raises(UsageError, match="UNRESOLVED_COLUMN"):
        explained(lambda: spark.sql("select nothing from visits"))
    with pytest.raises(UsageError, match="must read a topic"):
        sql_job(spark, pages.app, "select 1", "x", flags=flags)


@pytest.mark.slow
def test_the_tinder_pipeline_and_its_report(spark: SparkSession, tmp_path: Path) -> None:
    """On the embedded log, with the code that the documentation shows. `test_end_to_end` has it on a broker."""
    flags = {"data": tmp_path}
    stream = LikeStream(3, Origin())
    sent: list[Like] = [like for _ in range(3) for like in stream.next(300, DAY)]
    ran(tinder, flags, (likes, sent))
    for each in (collect, windows, people):
        run_job(spark, tinder, each, once=True, flags=flags)

    found = [match for matches in expected(sent).matches.values() for match in matches]
    page = report(tmp_path / "tinder" / "tables")
    assert f"<b>{len(found):,}</b><span>matches</span>" in page
    assert "http" not in page  # nothing from elsewhere
    assert reading.newest(spark, flags).count() == 10
    assert sum(row["count"] for row in reading.popular(spark, flags).collect()) == 2 * len(found)
    assert reading.longest(spark, flags).count() == 10
    assert reading.talkative(spark, flags).first().likes > 1
