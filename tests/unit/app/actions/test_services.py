"""What is listed of an app's services."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from tidegate import TTL, App, Context, MapState, OperatorState
from tidegate_app.actions.services import list_services


async def test_states_are_listed_as_they_are_declared(tmp_path: Path) -> None:
    app = App("app", data=str(tmp_path))

    @app.process(app.topic("events"))
    async def service(
        ctx: Context, event: Any, odd: OperatorState[int], names: Annotated[MapState[str, int], TTL(hours=1)]
    ) -> None: ...

    (row,), _ = await list_services(app.define(), {})
    assert row["states"] == {"odd": "operator[int]", "names": "map[str, int], kept 1 hour"}
