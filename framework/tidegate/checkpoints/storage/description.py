"""The description of the app in a manifest."""

from __future__ import annotations

from typing import Any

import msgspec

from tidegate.engine.topology.plan import Plan
from tidegate.functions.definition import ServiceDefinition
from tidegate.state.schema import schema_of

__all__ = ("describe", "describe_states")


def describe(plan: Plan) -> dict[str, Any]:
    """The fields of a manifest that come from the plan: topics, parallelism, state schemas."""
    topics = plan.topics
    outside = {topic for task in plan.tasks for topic in task.outside}
    return {
        "partitions": {name: topic.partitions for name, topic in topics.items()},
        "outside": sorted(outside),
        "internal": sorted(name for name, topic in topics.items() if topic.internal or topic.carried),
        "parallelism": {name: service.tasks for name, service in plan.services.items()},
        "schemas": {name: schemas for name, service in plan.services.items() if (schemas := describe_states(service))},
    }


def describe_states(service: ServiceDefinition) -> dict[str, dict[str, Any]]:
    """The schema of each state, as a manifest contains it: reading a savepoint does not need the app's code."""
    return {name: msgspec.to_builtins(schema_of(state)) for name, state in service.states.items()}
