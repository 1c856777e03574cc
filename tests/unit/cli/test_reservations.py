"""`federator reserve` and `unreserve`: one document more or less in the set in force, and nobody else's change undone."""

import json

import pytest
from msgspec.structs import replace

from federator.model.rules import Opening, PolicyDocument, PolicySet, PoolSelector, Scope, Window
from federator.wire.administration import PolicyVerdict
from federator.wire.waiting import ReservedGpus, WaitingNow
from federator.wire.yamltext import read_documents
from tests.support.fake_dispatcher import FakeDispatcher
from tests.unit.cli.answers import NOW, TIME
from tests.unit.cli.conftest import Command

QUEUE = PolicyDocument("Queue", "demo", "kind: Queue\nmetadata: {name: demo}\n")
SHOW = PolicyDocument("Reservation", "show", "kind: Reservation\nmetadata: {name: show}\n")
CLOSING = Opening(
    "Reservation/show",
    PoolSelector(sites=("lab",), models=("H100",)),
    closed=(Window(first_at=NOW + 3600.0, until_at=NOW + 7200.0),),
    but_for=Scope(queues=("demo",)),
)
NIGHTS = Opening("Calendar/nights", PoolSelector(sites=("lab",)))


@pytest.fixture
def kept(fake: FakeDispatcher) -> FakeDispatcher:
    documents, rules = (QUEUE, SHOW), (NIGHTS, CLOSING)
    in_force = PolicySet(
        version=7, author="pat", reason="x", applied_at=NOW, documents=documents, rules=rules
    )
    fake.answer("GET /v1/policies", in_force, headers=TIME)
    fake.answer("POST /v1/policies", PolicyVerdict(8))
    return fake


def _sent(fake: FakeDispatcher) -> dict[str, object]:
    (request,) = fake.of("POST /v1/policies")
    sent: dict[str, object] = json.loads(request.body)
    return sent


def test_a_reservation_is_added_to_the_set_that_was_read(federator: Command, kept: FakeDispatcher) -> None:
    words = ("--site", "lab", "--from", "2030-01-01T08:00Z", "--for", "90m", "--owner", "ada", "--finish")
    assert "course is reserved for ada" in federator("reserve", "course", *words).out
    sent = _sent(kept)
    assert (sent["instead_of"], sent["reason"]) == (7, "reserve course")
    *others, added = read_documents(str(sent["text"]))
    assert [each.value["metadata"]["name"] for each in others] == ["demo", "show"]  # type: ignore[index] # a mapping
    assert added.value == {
        "apiVersion": "federator/v1",
        "kind": "Reservation",
        "metadata": {"name": "course"},
        "spec": {
            "where": {"sites": ["lab"]},
            "from": "2030-01-01T08:00:00Z",
            "until": "2030-01-01T09:30:00Z",
            "at_start": "finish",
            "who": {"owners": ["ada"]},
        },
    }


def test_one_is_taken_out_and_those_that_there_are_are_listed(
    federator: Command, kept: FakeDispatcher
) -> None:
    assert federator("reserve").out.splitlines()[-1].split() == [
        "show",
        "lab",
        "H100",
        "in",
        "1h",
        "in",
        "2h",
        "jobs",
        "in",
        "demo",
    ]
    assert "no longer reserved" in federator("unreserve", "show").out
    assert _sent(kept)["text"] == QUEUE.text


def test_for_whom_it_is_is_said_as_it_holds(federator: Command, kept: FakeDispatcher) -> None:
    words = ("--site", "lab", "--for", "1h", "--owner", "ada", "--owner", "ben", "--queue", "demo")
    assert "course is reserved for ada, ben in demo from" in federator("reserve", "course", *words).out


def test_what_is_over_is_taken_out_and_its_name_is_free(federator: Command, fake: FakeDispatcher) -> None:
    over = replace(CLOSING, closed=(Window(first_at=NOW - 7200.0, until_at=NOW - 60.0),))
    in_force = PolicySet(
        version=7, author="pat", reason="x", applied_at=NOW, documents=(QUEUE, SHOW), rules=(over,)
    )
    fake.answer("GET /v1/policies", in_force, headers=TIME)
    fake.answer("POST /v1/policies", PolicyVerdict(8))
    assert "show is reserved" in federator("reserve", "show", "--site", "lab", "--for", "1h").out
    texts = str(_sent(fake)["text"]).split("---\n")
    assert texts[0] == QUEUE.text
    assert len(texts) == 2


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("reserve", "show", "--site", "lab", "--for", "1h"), "there is a reservation 'show' already"),
        (("reserve", "new", "--for", "1h"), "--site: is missing"),
        (("reserve", "new", "--site", "lab"), "--until: is missing"),
        (("reserve", "new", "--site", "lab", "--until", "1h", "--for", "1h"), "one of them only"),
        (("reserve", "new", "--site", "lab", "--for", "soon"), "--for"),
        (("unreserve", "new"), "federator reserve lists them"),
    ],
)
def test_a_mistake_changes_nothing(
    federator: Command, kept: FakeDispatcher, words: tuple[str, ...], says: str
) -> None:
    ran = federator(*words)
    assert ran.code != 0
    assert says in ran.err
    assert not kept.of("POST /v1/policies")


def test_what_is_kept_now_stands_below_what_waits(fake: FakeDispatcher, federator: Command) -> None:
    gang = ReservedGpus(site="lab", job="job-1", name="gang", gpus=8.0, until_at=NOW + 3600.0)
    show = ReservedGpus(
        site="lab", job="", name="queue demo", gpus=1.0, until_at=NOW + 60.0, policy="Reservation/show"
    )
    fake.answer("GET /v1/waiting", WaitingNow(jobs=0, gpus=0.0, reserved=(gang, show)), headers=TIME)
    out = federator("waiting").out
    assert "8 GPUs are kept at lab for gang until in 1h" in out
    assert "1 GPU is kept at lab by policy Reservation/show for queue demo until in 1m" in out
