"""The fields that a kind of policy accepts, read off its published schema."""

from federator.ports import PolicyKind
from federator.wire.schema import record_schema


def field_paths(kind: PolicyKind) -> set[str]:
    """Paths such as `limit.gpus` of all fields that hold a value of their own."""
    schema = record_schema(kind.spec)
    definitions = schema["$defs"]

    def below(node: object, path: str) -> set[str]:
        assert isinstance(node, dict)
        for each in (node, *node.get("anyOf", ())):
            if "$ref" in each:
                properties = definitions[each["$ref"].rsplit("/", 1)[1]]["properties"]
                return {
                    found
                    for key, value in properties.items()
                    for found in below(value, f"{path}.{key}".lstrip("."))
                }
        return {path}

    return below({"$ref": schema["$ref"]}, "")
