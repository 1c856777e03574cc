"""The published JSON Schemas describe every field, take every file on the pages and among the examples, and refuse what the readers refuse."""

import json
import re
from collections.abc import Callable
from functools import cache
from typing import Annotated, Any, get_args

import jsonschema_rs
import pytest
from msgspec import Meta

from federator.cli.schema import File
from federator.kernel.errors import Invalid
from federator.settings import Settings
from federator.wire.decoding import decode
from federator.wire.jobfile import read_job
from federator.wire.schema import type_schema
from federator.wire.servicefile import read_service
from federator.wire.yamltext import read_documents, write_document
from federator_agent.config import parse
from federator_policies.documents import compile_set, load
from tests.architecture.sources import text, tracked

BLOB = {"workdir": f"sha256:{'0' * 64}"}
"""By the time the dispatcher reads a job file, the client has uploaded the folder."""
READERS: dict[str, Callable[[Any], object]] = {
    "job": lambda value: read_job({**value, **(BLOB if "workdir" in value else {})}, now=0.0),
    "service": lambda value: read_service(value, now=0.0),
    "policy": lambda value: compile_set(load(write_document(value))),
    "site": lambda value: parse(json.dumps(value), "site.yaml", {}),
    "settings": lambda value: decode(value, Settings, "$"),
}
SIGNS = {"site": {"site"}, "job": {"run", "command"}, "service": {"port"}, "policy": {"apiVersion"}, "settings": {"server", "providers", "oidc", "turn", "store", "retention", "limits"}}  # fmt: skip
"""Any of these at the top of a document on a page or in an example tells its kind."""
WRONG: dict[str, list[dict[str, Any]]] = {
    "job": [
        {"quue": "x"},
        {"nodes": 0},
        {"nodes": "2"},
        {"run": ["a", "b"]},
        {"priority": 101},
        {"estimate": "soon"},
        {"max_duration": 3600},
        {"resources": {"memory": 64}},
        {"resources": {"gpus": ["A100"]}},
        {"resources": {"any_of": []}},
        {"deadline": "tomorrow"},
        {"max_cost": "40 EUR"},
        {"spot_policy": "spott"},
        {"checkpoint": {"signal": "KILL"}},
        {"retry": {"on": ["eror"]}},
        {"on_disconnect": "stop"},
        {"on_disconnect": {}},
        {"placement": {"kinds": "onprm"}},
        {"name": "a b"},
        {"queue": "a//b"},
        {"env": {"FEDERATOR_JOB": "1"}},
        {"env": {"A": ["x"]}},
        {"inputs": ["ftp://x/y"]},
        {"inputs": [{"from": "two words"}]},
        {"every": {"at": "@daily", "keep": 0}},
        {"array": []},
    ],
    "service": [
        {"kind": "servise"},
        {"port": 0},
        {"port": "none"},
        {"replicas": 0},
        {"replicas": {"min": -1}},
        {"replica": 2},
        {"ready": {"http": "health"}},
        {"ready": "yes"},
        {"target": {"p95_latency": "soon"}},
        {"resend": "some"},
        {"resources": {"memory": 64}},
    ],
    "policy": [
        {"spec": {"weigth": 1}},
        {"spec": {"weight": 0}},
        {"spec": {"max_wait": "soon"}},
        {"spec": {"guaranteed": {"memory": 64}}},
        {"spec": {"allow": [{"must": "yes"}]}},
        {"kind": "Nonsense"},
        {"metadata": {}},
        {"metadata": {"name": "a b"}},
        {"kind": "Budget"},
        {"kind": "BurstPolicy", "spec": {"when": {"mode": "sometimes"}}},
    ],
    "site": [
        {"kindd": "edge"},
        {"kind": "moon"},
        {"pools": []},
        {"pools": [{"name": "a", "gpu_mem": "80GB"}]},
        {"pools": [{"gpus_per_node": 0}]},
        {"lend": {"hours": "at night"}},
        {"report_every": 5},
        {"dispatcher": "localhost"},
        {"watch_gpus": "sometimes"},
        {"images": "docker"},
        {"isolation": "none"},
        {"isolation": {"processes": 1}},
        {"slurm": {}},
        {"slurm": {"shared_dir": "here"}},
        {"kube": {"image": "i", "namespace": "Not_One"}},
        {"kube": {"image": "i", "pools": [{"name": "a"}]}},
    ],
    "settings": [
        {"sever": {}},
        {"server": {"port": "7070"}},
        {"turn": {"stages": "lp"}},
        {"log_level": "loud"},
        {"visibility": {"jobs": "nobody"}},
        {"store": {"etcd": {}}},
        {"oidc": {"issuer": "https://id.example.org"}},
    ],
}
LEAST: dict[str, dict[str, Any]] = {
    "site": {"site": "basel"},
    "job": {"run": "true"},
    "service": {"kind": "service", "name": "chat", "run": "true", "port": 80},
    "policy": {"apiVersion": "federator/v1", "kind": "Queue", "metadata": {"name": "a"}},
    "settings": {},
}


def schema(file: str) -> Any:
    return json.loads(text(f"docs/reference/{file}.schema.json"))


@cache
def written() -> tuple[tuple[str, str, Any], ...]:
    """All YAML documents on pages and among the examples: what kind of file it is, where, and the value."""
    texts = [(path, text(path)) for path in tracked() if re.fullmatch(r"\w+/examples/.*\.yaml", path)]
    for path in tracked():
        if path.startswith(("docs/", "README.md")) and path.endswith(".md"):
            blocks = re.findall(r"```yaml(?! typo)[^\n]*\n(.*?)```", text(path), flags=re.DOTALL)
            texts += [(path, block) for block in blocks]
    values = [(path, document.value) for path, found in texts for document in read_documents(found)]
    return tuple(
        (file, path, value)
        for path, each in values
        if isinstance(value := _file_in(each), dict)
        for file, signs in SIGNS.items()
        if value.keys() & signs and (file != "job" or value.get("kind") != "service")
    )


def _file_in(value: Any) -> Any:
    """The job file, or the document of a policy, in an object of Kubernetes; None for one that holds neither, and anything else as it is."""
    kind = value.get("kind") if isinstance(value, dict) else None
    if kind == "FederatedJob":
        return value["spec"]
    if kind in ("Workflow", "FederatedSite"):
        return None  # of Argo, and of the operator
    if kind == "FederatedPolicy":
        name = {"name": value["metadata"]["name"]}
        return {"apiVersion": "federator/v1", "metadata": name} | value["spec"]
    return value


def test_a_bound_is_written_in_one_way_whoever_is_imported_first() -> None:
    """Python holds annotations that are equal for the same one, and 1e6 for equal to 1_000_000."""
    whole, real = Meta(ge=0, lt=1_000_000), Meta(ge=0.0, lt=1e6)
    first, second = (
        type_schema(Annotated[float, whole, "first"]),
        type_schema(Annotated[float, real, "second"]),
    )
    assert json.dumps(first) == json.dumps(second)
    assert type_schema(Annotated[float, Meta(le=0.5)])["maximum"] == 0.5


@pytest.mark.parametrize("file", get_args(File))
def test_every_field_says_what_it_means(file: str) -> None:
    """Or the record that it holds does."""
    parts = schema(file)["$defs"]
    silent = [
        f"{name}.{field}"
        for name, part in parts.items()
        for field, about in part.get("properties", {}).items()
        if not (about.get("description") or parts.get(about.get("$ref", "").rpartition("/")[2]))
        and about.keys() != {"enum"}  # what tells records of several kinds apart
    ]
    assert not silent


@pytest.mark.parametrize("file", READERS)
def test_what_is_on_pages_and_among_examples_is_taken(file: str) -> None:
    validator = jsonschema_rs.validator_for(schema(file))
    found = [(path, value) for kind, path, value in written() if kind == file]
    assert len(found) >= 3
    for path, value in found:
        said = json.loads(json.dumps(value))  # a key such as 1 is a text in JSON
        assert not [f"{path}: {error.message}" for error in validator.iter_errors(said)]


@pytest.mark.parametrize(("file", "change"), [(file, each) for file, all_ in WRONG.items() for each in all_])
def test_what_is_wrong_is_refused_by_schema_and_reader(file: str, change: dict[str, Any]) -> None:
    validator = jsonschema_rs.validator_for(schema(file))
    READERS[file](LEAST[file])
    validator.validate(LEAST[file])
    assert not validator.is_valid(LEAST[file] | change)
    with pytest.raises((Invalid, ExceptionGroup)):
        READERS[file](LEAST[file] | change)
