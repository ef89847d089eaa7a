"""tidegate topics"""

from __future__ import annotations

from typing import Any

import click

from tidegate_app.options import app_argument, json_option, setting_flags, take_flags

__all__ = ("command",)


@click.command("topics")
@app_argument
@click.option("--all", "internal", is_flag=True, help="Include internal topics.")
@json_option
@setting_flags("broker", "data")
def command(app: str, internal: bool, as_json: bool, **options: Any) -> None:
    """List the topics of an APP: partitions, records, retention, writers and readers.

    The records of large topics are not counted; the number is an upper bound from their offsets, which have gaps.

    \b
    tidegate topics hello.py
    tidegate topics hello.py --all --json | jq '.[].name'
    """
    import asyncio

    from tidegate_app.actions.topics import list_topics
    from tidegate_app.app_loader import load_app
    from tidegate_app.output import print_json, print_table

    rows = asyncio.run(list_topics(load_app(app).define(), take_flags(options), internal=internal))
    if as_json:
        print_json(rows)
        return
    print_table(
        ("topic", "partitions", "records", "type", "kept", "written by", "read by"),
        [
            (
                row["name"],
                str(row["partitions"]),
                _records(row),
                row["type"],
                row["kept"],
                ", ".join(row["written_by"]),
                ", ".join(row["read_by"]),
            )
            for row in rows
        ],
        right=("partitions", "records"),
    )


def _records(row: dict[str, Any]) -> str:
    if not row["created"]:
        return "not created yet"
    return f"{'' if row['exact'] else '≤ '}{row['records']:,}"
