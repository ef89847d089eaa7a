"""The app's services: topics, states, timers, messages."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter
from starlette.responses import Response

from tidegate_api.context import Api, ApiContext, Caller
from tidegate_api.models import ServiceList, ServiceView
from tidegate_api.responses import json_answer
from tidegate_api.schemas import type_name

__all__ = ("router",)

router = APIRouter(tags=["services"])


@router.get("/v1/services", response_model=ServiceList)
async def list_services(api: Api, caller: Caller) -> Response:
    """The app's services that the token may access."""
    names = [name for name in api.serving.services() if caller.may("ops") or caller.may(f"state:read:{name}")]
    if not names:
        caller.require("ops", "state:read:*")
    views = [describe(api, name) for name in names]
    return json_answer({"app": api.serving.app.id, "run": api.serving.run, "services": views})


@router.get("/v1/services/{service}", response_model=ServiceView)
async def get_service(api: Api, caller: Caller, service: str) -> Response:
    """One service: its topics, states and timers."""
    caller.require(f"state:read:{service}", "ops")
    api.serving.service(service)
    return json_answer(describe(api, service))


def describe(api: ApiContext, name: str) -> dict[str, Any]:
    planned = api.serving.service(name)
    declared = next((known for known in api.serving.app.services if known.name == name), planned)
    states = [
        {
            "name": state.name,
            "kind": state.kind,
            "type": type_name(state.codec.type),
            "queryable": state.queryable and state.kind != "operator",
            "ttl_ms": None if state.ttl is None else state.ttl.ms,
        }
        for state in api.serving.states(name).values()
    ]
    return {
        "name": name,
        "description": (api.app.services[name].__doc__ or "").strip() if name in api.app.services else "",
        "inputs": [topic.name for topic in declared.topics],
        "outputs": [topic.name for topic in declared.outputs.values()],
        "states": states,
        "timers": sorted(timer or "*" for timer in planned.timers),
        "key_type": type_name(planned.key_type),
        "tasks": planned.tasks,
        "guarantee": planned.execution.guarantee,
        "rekeyed": any(topic.internal for topic in planned.topics),
        "dead_letters": api.serving.dead_letters(name),
        "messages": sorted(planned.messages),
    }
