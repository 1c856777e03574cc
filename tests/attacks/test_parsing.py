"""A document of a user's may not keep the dispatcher from answering others: it is read beside the event loop, within limits."""

import asyncio
import io
import threading
from collections import Counter

import pytest
import yaml

from federator.api import jobs, parser_threads
from federator.kernel.errors import Invalid, TooLarge
from federator.wire.jobfile import read_job
from federator.wire.yamltext import MAX_BYTES, MAX_PATH, MAX_VALUES, Document, read_document, read_documents
from tests.integration.api.rig import Rig


@pytest.fixture
def events(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How many events are taken from the parser."""
    taken: Counter[str] = Counter()
    parse = yaml.parse

    def counting(*args: object, **options: object) -> object:
        for event in parse(*args, **options):
            taken["events"] += 1
            yield event

    monkeypatch.setattr(yaml, "parse", counting)
    return taken


def test_a_million_empty_lists_are_refused_after_the_limit(events: Counter[str]) -> None:
    """This kept the loop busy for half a minute."""
    with pytest.raises(TooLarge, match=f"more than {MAX_VALUES} values") as refused:
        read_documents(f"[{'[],' * (MAX_BYTES // 3 - 1)}]")
    assert refused.value.remedy
    assert events["events"] == MAX_VALUES + 1


@pytest.mark.parametrize("text", ["[" * 100_000, "{a: " * 100_000, "- " * 100_000, "? " * 100_000])
def test_what_is_nested_deeply_is_refused_where_it_gets_too_deep(text: str, events: Counter[str]) -> None:
    with pytest.raises(Invalid, match=r"deep|a key must be a word"):
        read_documents(text)
    assert events["events"] < 100


def test_long_keys_do_not_multiply_what_is_kept_of_lines() -> None:
    """Each value had a path with all keys above it: a megabyte became gigabytes."""
    key = "k" * 200
    text = (
        "{" + "".join(f"{key}{depth}: {{" for depth in range(20)) + ", ".join(f"a{n}: 1" for n in range(5000))
    )
    (document,) = read_documents(text + "}" * 21)
    assert sum(len(path) for path in document.lines) < 20 * MAX_PATH


def test_very_many_documents_are_refused(events: Counter[str]) -> None:
    with pytest.raises(TooLarge, match="values"):
        read_documents("---\n" * (MAX_BYTES // 4))
    assert events["events"] == MAX_VALUES + 1


@pytest.mark.parametrize("path", ["/v1/jobs", "/v1/preview"])
async def test_yaml_is_read_beside_the_loop(rig: Rig, path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    where: list[str] = []

    def noting(text: str) -> Document:
        where.append(threading.current_thread().name)
        return read_document(text)

    monkeypatch.setattr(jobs, "read_document", noting)
    answer = await rig.ask("POST", path, "ada", data=b"[[]]", headers={"Content-Type": "application/yaml"})
    assert answer.status == 400
    assert len(where) == 1
    assert where[0].startswith("parsing")
    assert where[0] != threading.current_thread().name


async def test_no_more_than_two_texts_are_read_at_once() -> None:
    begun, go_on = threading.Semaphore(0), threading.Event()

    def parse(text: str) -> str:
        begun.release()
        assert go_on.wait(60)
        return text

    reading = [asyncio.create_task(parser_threads.in_thread(parse, text)) for text in "abc"]
    for _ in range(2):
        assert await asyncio.to_thread(begun.acquire, timeout=60)
    assert not await asyncio.to_thread(begun.acquire, timeout=0.1)
    go_on.set()
    assert await asyncio.gather(*reading) == ["a", "b", "c"]


async def test_a_job_file_is_as_long_as_a_job_file_can_be(rig: Rig) -> None:
    for kind in ("application/yaml", "application/json"):
        answer = await rig.ask(
            "POST", "/v1/jobs", "ada", data=io.BytesIO(b" " * (2**20 + 1)), headers={"Content-Type": kind}
        )
        assert answer.status == 413
        assert "1 MiB" in answer.problem["detail"]


@pytest.mark.parametrize("name", ["any_of", "ordered"])
def test_a_long_list_of_resources_is_refused_before_its_entries_are_read(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    read: list[object] = []
    monkeypatch.setattr("federator.wire.fields.number", lambda value, *_, **__: read.append(value))
    with pytest.raises(Invalid, match="has 30000 entries"):
        read_job({"run": "x", "resources": {name: [{"cpus": 1}] * 30_000}}, now=0.0)
    assert not read
