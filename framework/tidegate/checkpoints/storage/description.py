"""What a manifest says about the app itself."""

from __future__ import annotations

from typing import Any

import msgspec

from tidegate.engine.topology.plan import Plan
from tidegate.functions.definition import ServiceDefinition
from tidegate.state.schema import schema_of

__all__ = ("describe", "describe_states")


def describe(plan: Plan) -> dict[str, Any]:
    """The fields of a manifest that come from the plan: topics, parallelism, and the schemas of states."""
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
    """The schema of each of its states, as a manifest has it: whoever reads the savepoint needs no code of the app."""
    return {name: msgspec.to_builtins(schema_of(state)) for name, state in service.states.items()}
