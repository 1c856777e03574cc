"""The OpenAPI description, generated from the route table and the records' own types, so that it cannot say anything else than the code does."""

import re
from collections.abc import Sequence
from typing import Any

import msgspec

import federator
from federator.api.exchange import JSON
from federator.api.problems import CONTENT_TYPE as PROBLEM
from federator.api.table import Gate, Route
from federator.model.rights import Relation
from federator.wire.http import Problem

REFERENCE = "#/components/schemas/{name}"
_SECURITY: dict[Gate, list[dict[str, list[str]]]] = {
    Gate.OPEN: [],
    Gate.PERSON: [{"token": []}],
    Gate.JOB: [{"token": []}],
    Gate.AGENT: [],
    Gate.SESSION: [{"ticket": []}],
}
_PART = re.compile(r"{(\w+)}")


def description(routes: Sequence[Route]) -> dict[str, Any]:
    """An OpenAPI 3.1 document of these routes."""
    types = [Problem, *(each for route in routes for each in (route.body, route.answer) if each is not None)]
    schemas, components = msgspec.json.schema_components(types, ref_template=REFERENCE)
    known = {repr(each): schema for each, schema in zip(types, schemas, strict=True)}
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route, known)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Federator", "version": federator.__version__},
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {
                "token": {"type": "http", "scheme": "bearer", "description": "A person's token."},
                "ticket": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "The ticket of an agent's session.",
                },
            },
        },
    }


def _operation(route: Route, schemas: dict[str, Any]) -> dict[str, Any]:
    problem = {
        "description": "What is wrong, where, and what would be right",
        "content": {PROBLEM: {"schema": schemas[repr(Problem)]}},
    }
    answer: dict[str, Any] = {"description": "Done"}
    if route.content != JSON:
        answer["content"] = {route.content: {}}
    if route.answer is not None:
        answer.setdefault("content", {})[JSON] = {"schema": schemas[repr(route.answer)]}
    operation: dict[str, Any] = {
        "operationId": f"{route.handler.__module__.rpartition('.')[2]}.{route.handler.__name__}",
        "tags": [route.handler.__module__.rpartition(".")[2]],
        "summary": route.summary,
        "description": _permission(route),
        "security": _SECURITY[route.gate],
        "parameters": [*_path_parameters(route), *_query_parameters(route)],
        "responses": {str(route.status): answer, "default": problem},
    }
    if route.body is not None:
        content = {
            kind: {"schema": schemas[repr(route.body)]} if kind == JSON else {} for kind in route.takes
        }
        operation["requestBody"] = {"required": True, "content": content}
    return operation


_STANDS = {
    Relation.OWNER: "the job's owner",
    Relation.TEAM_MATE: "members of its team",
    Relation.TEAM_ADMIN: "administrators of its team",
    Relation.QUEUE_ADMIN: "administrators of its queue",
    Relation.SITE_ADMIN: "administrators of its site",
    Relation.PLATFORM: "the roles platform and admin",
}


def _permission(route: Route) -> str:
    match route.gate:
        case Gate.OPEN:
            return "Open to everyone."
        case Gate.JOB:
            known = [_STANDS[relation] for relation in Relation if relation in route.allows]
            return f"For {', '.join(known[:-1])} and {known[-1]}." if known[1:] else f"For {known[0]}."
        case Gate.AGENT:
            return "For an agent: by its one-time join token, or by proving its key."
        case Gate.SESSION:
            return "For an agent, by the ticket of its session."
        case Gate.PERSON:
            others = [role for role in route.roles if role != "admin"]
            if not others:
                return "For the role admin." if route.roles else "For every token."
            return f"For the roles {', '.join(others)} and admin."


def _path_parameters(route: Route) -> list[dict[str, Any]]:
    return [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
        for name in _PART.findall(route.path)
    ]


def _query_parameters(route: Route) -> list[dict[str, Any]]:
    if route.query is None:
        return []
    _, components = msgspec.json.schema_components([route.query], ref_template=REFERENCE)
    schema = components[route.query.__name__]
    required = schema.get("required", ())
    return [
        {"name": name, "in": "query", "required": name in required, "schema": each}
        for name, each in schema["properties"].items()
    ]
