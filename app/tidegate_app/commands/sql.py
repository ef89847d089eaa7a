"""tidegate sql"""

from __future__ import annotations

from typing import Any

import click

from tidegate_app.options import app_argument, setting_flags, take_flags

__all__ = ("command",)


@click.command("sql")
@app_argument
@click.argument("query")
@click.option("--savepoint", metavar="URI", help="Add the states of this savepoint as views SERVICE_STATE.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON lines instead of a table.")
@click.option(
    "--limit",
    type=click.IntRange(min=1),
    default=1000,
    show_default=True,
    metavar="N",
    help="The maximum number of rows.",
)
@click.option("--stream", is_flag=True, help="Run the query continuously over the topics. Needs --to.")
@click.option("--to", metavar="TOPIC|TABLE", help="The target of --stream: a topic of the APP, or a table.")
@click.option(
    "--key",
    metavar="COLUMN,...",
    help="The table's key, of which the newest row is kept; or the key of the topic's records.",
)
@click.option("--date", metavar="COLUMN", help="The column by whose day the table is partitioned.")
@click.option("--name", metavar="JOB", help="The name of the stream and its checkpoint. [sql_TARGET]")
@click.option("--once", is_flag=True, help="With --stream: exit when the current input is processed.")
@click.option("--jars", metavar="A.jar,B.jar", help="Use these jars instead of downloading the connector.")
@setting_flags("broker", "data", "tables", "spark_master")
def command(app: str, query: str, **options: Any) -> None:
    """Run a QUERY in Spark's SQL over an APP: its topics, its tables, and the state in a savepoint.

    A topic's rows have the fields of its events, and key, event_time, timestamp, partition, offset, headers, sender,
    run and epoch. 'show views' lists what there is. Followed by --stream, windows are by event time with the topic's
    watermark: window(event_time, '1 minute'), window(event_time, '1 hour', '5 minutes'),
    session_window(event_time, '10 minutes').

    \b
    tidegate sql shop.py "select what, count(*) from sales group by what"
    tidegate sql shop.py "select window.start as hour, count(*) as sales from sales
                          group by window(event_time, '1 hour')" --stream --to sales_per_hour --key hour
    """
    from tidegate_app.actions.sql import SqlCommand

    SqlCommand(app, take_flags(options), options).run(query)
