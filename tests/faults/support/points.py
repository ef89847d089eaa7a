"""Which of the engine's fault points a worker passes depends on its log, and on whether it takes checkpoints."""

from __future__ import annotations

from tidegate.faults import POINTS

__all__ = ("OF_CHECKPOINTS", "OF_SPARK", "ON_EMBEDDED", "ON_KAFKA", "TRIMMING")

_OF_KAFKA = {point for point in POINTS if point.startswith(("transaction.", "group."))}
_OF_EMBEDDED = {point for point in POINTS if point.startswith("log.")}

TRIMMING = "leader.trimming"
"""Only apps that re-key come here: `test_pipelines` brings one."""
OF_CHECKPOINTS = sorted(
    point for point in POINTS.keys() - {TRIMMING} if point.startswith(("snapshot.", "leader.", "recovery.fetch"))
)
"""Those of checkpoints, on any log: `test_checkpoints` brings workers there."""
OF_SPARK = sorted(point for point in POINTS if point.startswith(("table.", "topic.")))
"""Those of Spark's drivers: `tests/spark/test_deaths.py` brings them there."""
_ELSEWHERE = {
    TRIMMING,
    *OF_CHECKPOINTS,
    *OF_SPARK,
    *(point for point in POINTS if point.startswith(("restore.", "state.migrating"))),
}
"""An ordinary run passes none of these; restores and migrations have their own tests (`test_cli_savepoints`)."""
ON_EMBEDDED = sorted(POINTS.keys() - _OF_KAFKA - _ELSEWHERE)
ON_KAFKA = sorted(POINTS.keys() - _OF_EMBEDDED - _ELSEWHERE)
