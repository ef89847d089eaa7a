"""The OpenAPI document: FastAPI's own, expanded to one typed path per service, state and topic."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any, Final

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from tidegate_api.context import ApiContext
from tidegate_api.problems import MEDIA_TYPE
from tidegate_api.schemas import Schemas

__all__ = ("document",)

_PROBLEMS: Final = {
    "401": "The token is missing or unknown.",
    "403": "The token lacks the scope, or the state is not queryable.",
    "404": "Not found.",
    "414": "The URL is too long.",
    "409": "`min_position` does not belong to this service; or the idempotency key was used for another request.",
    "421": "The request was sent to the wrong host or worker.",
    "422": "The request is invalid; `detail` says why.",
    "429": "The limit of concurrent requests is reached; see Retry-After.",
    "503": "The state is being restored, or the log is unavailable; see Retry-After.",
}
_BODY_PROBLEMS: Final = {"413": "The body is too large.", "415": "The body is not JSON."}
LATEST: Final = 253_402_300_799_999
"""The end of the year 9999."""
_MESSAGE_PROBLEMS: Final = {
    "502": "The handler failed, and the service's error policy gave the message up.",
    "504": "No reply arrived in time; the message may still be handled.",
}
_METHODS: Final = ("get", "post")


def document(app: FastAPI, context: ApiContext) -> dict[str, Any]:
    found = get_openapi(
        title=app.title,
        version=app.version,
        description=f"Committed state, actors and operations of the app `{app.title}`.",
        routes=app.routes,
    )
    schemas = Schemas(_types(context))
    found["paths"] = dict(_expanded(found["paths"], context, schemas))
    components = found.setdefault("components", {})
    components.setdefault("schemas", {}).update(schemas.components)
    components["schemas"].pop("HTTPValidationError", None)
    components["schemas"].pop("ValidationError", None)
    components["schemas"]["ProblemDetails"] = _problem_schema()
    if context.secured:
        components["securitySchemes"] = {"bearer": {"type": "http", "scheme": "bearer"}}
        found["security"] = [{"bearer": []}]
    for name, path in found["paths"].items():
        for method in _METHODS:
            if method in path:
                _complete(path[method], method, messages=name.endswith(("/tell", "/ask")))
    return found


def _types(context: ApiContext) -> Iterator[Any]:
    for service in context.serving.services().values():
        yield from (state.codec.type for state in context.serving.states(service.name).values())
        yield from (message.codec.type for message in service.messages.values())
    yield from (topic.codec.type for topic in context.serving.topics().values())


# ------------------------------------------------------------------------------------------------------------- paths


def _expanded(paths: dict[str, Any], context: ApiContext, schemas: Schemas) -> Iterator[tuple[str, Any]]:
    for path, item in paths.items():
        if "{state}" in path:
            for service in context.serving.services().values():
                for state in context.serving.states(service.name).values():
                    if state.queryable and state.kind != "operator":
                        concrete = path.replace("{service}", service.name).replace("{state}", state.name)
                        yield concrete, _for_state(item, service, state, schemas, context.settings.api_page)
        elif path.endswith(("/tell", "/ask")):
            for service in context.serving.services().values():
                if service.messages:
                    yield path.replace("{service}", service.name), _for_messages(item, service, schemas)
        elif "{service}" in path:
            for service in context.serving.services().values():
                yield path.replace("{service}", service.name), _for_service(item, service)
        elif "{topic}" in path:
            for topic in context.serving.topics().values():
                yield path.replace("{topic}", topic.name), _for_topic(item, topic, schemas)
        else:
            yield path, item


def _named(item: dict[str, Any], gone: set[str], suffix: str) -> dict[str, Any]:
    """Remove the parameters that are now literal parts of the path."""
    item = copy.deepcopy(item)
    for operation in item.values():
        operation["operationId"] = f"{operation['operationId']}_{suffix}".replace(".", "_").replace("-", "_")
        operation["parameters"] = [
            parameter for parameter in operation.get("parameters", ()) if parameter["name"] not in gone
        ]
    return item


def _for_service(item: dict[str, Any], service: Any) -> dict[str, Any]:
    item = _named(item, {"service"}, service.name)
    for operation in item.values():
        _type_keys(operation, service)
    return item


def _for_messages(item: dict[str, Any], service: Any, schemas: Schemas) -> dict[str, Any]:
    item = _for_service(item, service)
    key = _KEYS.get(service.key_type, {})
    kinds = [
        _object(
            {"key": key, "message": schemas.of(message.codec.type), "type": {"const": name}},
            more={"timeout": {"type": "number", "exclusiveMinimum": 0, "maximum": 60}},
        )
        for name, message in service.messages.items()
    ]
    content = item["post"]["requestBody"]["content"]["application/json"]
    content["schema"] = kinds[0] if len(kinds) == 1 else {"oneOf": kinds}
    return item


def _type_keys(operation: dict[str, Any], service: Any) -> None:
    for parameter in operation["parameters"]:
        if parameter["name"] == "key" and parameter["in"] in ("path", "query"):
            parameter["schema"] = _KEYS.get(service.key_type, {"type": "string"})


def _for_state(item: dict[str, Any], service: Any, state: Any, schemas: Schemas, page: int) -> dict[str, Any]:
    gone = {"service", "state"} if state.kind == "map" else {"service", "state", "at"}
    item = _named(item, gone, f"{service.name}_{state.name}")
    value = _value_schema(state, schemas)
    key = _KEYS.get(service.key_type, {})
    for operation in item.values():
        _type_keys(operation, service)
        name = operation["operationId"]
        content = operation["responses"]["200"].get("content", {}).get("application/json")
        if content is None:
            continue
        if name.startswith("get_key"):
            either: dict[str, Any] = value
            if state.kind == "map":
                either = {"anyOf": [value, schemas.of(state.codec.type)]}
            content["schema"] = _object({"key": key, "value": either})
        elif name.startswith("list_keys"):
            one = _object({"key": key, "value": value}, more={"truncated": {"type": "boolean"}})
            one["properties"]["value"] = {"anyOf": [value, {"type": "null"}]}
            cursor = {"anyOf": [{"type": "string"}, {"type": "null"}]}
            content["schema"] = _object({"items": {"type": "array", "items": one}, "cursor": cursor})
        elif name.startswith("read_batch"):
            keys = {"type": "array", "items": key, "maxItems": page}
            operation["requestBody"]["content"]["application/json"]["schema"] = _object({"keys": keys})
            either = {"anyOf": [value, {"type": "null"}]}
            one = _object({"key": key, "found": {"type": "boolean"}, "value": either})
            content["schema"] = _object({"values": {"type": "array", "items": one}})
    return item


_KEYS: Final[dict[Any, dict[str, Any]]] = {str: {"type": "string"}, int: {"type": "integer"}}


def _value_schema(state: Any, schemas: Schemas) -> dict[str, Any]:
    if state.kind == "aggregating":
        return {}
    stored = schemas.of(state.codec.type)
    if state.kind == "map":
        return {"type": "object", "additionalProperties": stored}
    if state.kind == "list":
        return {"type": "array", "items": stored}
    return stored


def _for_topic(item: dict[str, Any], topic: Any, schemas: Schemas) -> dict[str, Any]:
    item = _named(item, {"topic"}, topic.name)
    value = schemas.of(topic.codec.type)
    if topic.compact:
        value = {"anyOf": [value, {"type": "null", "description": "A tombstone: the key is deleted."}]}
    record = _object(
        {"value": value},
        more={
            "key": _KEYS.get(topic.key_type, {}),
            "timestamp": {"type": "integer", "minimum": 0, "maximum": LATEST},
            "headers": {"type": "object", "additionalProperties": {"type": "string"}},
        },
    )
    body = _object({"records": {"type": "array", "items": record, "minItems": 1}})
    item["post"]["requestBody"]["content"]["application/json"]["schema"] = body
    return item


def _object(properties: dict[str, Any], more: dict[str, Any] | None = None) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {**properties, **(more or {})},
        "required": list(properties),
        "additionalProperties": False,
    }


# ---------------------------------------------------------------------------------------------------------- problems


def _complete(operation: dict[str, Any], method: str, *, messages: bool) -> None:
    for parameter in operation.get("parameters", ()):
        kinds = [kind for kind in parameter["schema"].get("anyOf", ()) if kind != {"type": "null"}]
        if len(kinds) == 1:  # optional parameters are omitted, not null: a URL or a header cannot carry null
            del parameter["schema"]["anyOf"]
            parameter["schema"].update(kinds[0])
    content = {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/ProblemDetails"}}}
    responses = operation["responses"]
    bodies, sent = _BODY_PROBLEMS if method == "post" else {}, _MESSAGE_PROBLEMS if messages else {}
    for status, description in (_PROBLEMS | bodies | sent).items():
        responses[status] = {"description": description, "content": content}


def _problem_schema() -> dict[str, Any]:
    text = {"type": "string"}
    return {
        "type": "object",
        "description": "RFC 9457.",
        "properties": {"type": text, "title": text, "status": {"type": "integer"}, "detail": text},
        "required": ["type", "title", "status", "detail"],
    }
