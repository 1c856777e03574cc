"""As whom a namespace submits: the operator's file, and what of an object may be submitted so."""

from pathlib import Path
from typing import Any

import pytest

from federator.kernel.errors import Forbidden, Invalid, Unavailable
from federator.operator.objects import NAME_LABEL, NAMESPACE_LABEL, UID_LABEL, FederatedJob, Meta
from federator.operator.settings import Tenant, load
from federator.operator.tenancy import document_of, read_token

OWN = Tenant(token_file=Path("/t"), queue="research")


def job(called: str = "train", **spec: Any) -> FederatedJob:
    return FederatedJob(
        metadata=Meta(name=called, namespace="team-a", uid="u-1"), spec={"run": "true", **spec}
    )


def test_the_job_file_has_the_objects_name_queue_labels_and_uid() -> None:
    assert document_of(job(labels={"app": "x"}, nodes=None), OWN) == {
        "run": "true",
        "name": "train",
        "queue": "research",
        "labels": {"app": "x", NAMESPACE_LABEL: "team-a", NAME_LABEL: "train", UID_LABEL: "u-1"},
        "client_id": "u-1",
    }


def test_long_names_are_cut_to_names_of_jobs() -> None:
    name = "a" * 62 + ".b"
    assert document_of(job(name), OWN)["name"] == "a" * 62
    assert document_of(job(name, name="own"), OWN)["name"] == "own"


def test_a_namespace_keeps_to_its_queue() -> None:
    assert document_of(job(queue="research/vision"), OWN)["queue"] == "research/vision"
    for other in ("default", "researching", "research2/x"):
        with pytest.raises(Forbidden, match=r"\$\.queue"):
            document_of(job(queue=other), OWN)
    assert "queue" not in document_of(job(), Tenant(token_file=Path("/t")))


@pytest.mark.parametrize(
    "spec", [{"client_id": "x"}, {"every": "6h"}, {"labels": {UID_LABEL: "other"}}, {"labels": "x"}]
)
def test_what_is_the_operators_own_is_refused(spec: dict[str, Any]) -> None:
    with pytest.raises(Invalid):
        document_of(job(**spec), OWN)


def test_a_token_is_read_anew_and_a_missing_one_may_come(tmp_path: Path) -> None:
    file = tmp_path / "token"
    for _ in range(2):
        with pytest.raises(Unavailable, match="token"):
            read_token(file)
        file.write_text("\n")
    file.write_text("one\n")
    assert read_token(file) == "one"
    file.write_text("two\n")
    assert read_token(file) == "two"


def test_paths_of_the_file_are_those_of_its_folder(tmp_path: Path) -> None:
    file = tmp_path / "operator.yaml"
    file.write_text("dispatcher: http://x\nkubeconfig: kc\nnamespaces: {research: {token_file: t}}\n")
    found = load(file)
    assert Path(found.namespaces["research"].token_file) == tmp_path / "t"
    assert found.kubeconfig == str(tmp_path / "kc")
    assert (found.ca, found.mirror_every) == ("", 2.0)


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ("namespaces: {a: {token_file: t}}", "dispatcher"),
        ("dispatcher: http://x\nnamespaces: {}", "namespaces"),
        ("dispatcher: http://x\nnamespaces: {Bad_One: {token_file: t}}", "small letters"),
        ("dispatcher: http://x\nnamespaces: {a: {token_file: t, queu: q}}", "did you mean queue"),
        ("dispatcher: http://x\nnamespaces: {a: {token_file: t}}\nmirror_every: 0s", "mirror_every"),
    ],
)
def test_a_mistake_is_told_where_it_is(tmp_path: Path, text: str, where: str) -> None:
    file = tmp_path / "operator.yaml"
    file.write_text(text)
    with pytest.raises(Invalid, match=where):
        load(file)
