"""Policy files: envelopes, lines in errors, contradictions between documents, and what queues take from those above."""

import re
from collections.abc import Mapping

import pytest

from federator.kernel.errors import Invalid, Permanent
from federator.model.rules import BurstMode, Effect, Filter, PolicyRule, QueueTerms
from federator_policies.documents import compile_set, load


def doc(kind: str, name: str, spec: str = "{}") -> str:
    return f"apiVersion: federator/v1\nkind: {kind}\nmetadata: {{name: {name}}}\nspec: {spec}\n"


def compiled(*documents: str) -> tuple[PolicyRule, ...]:
    return compile_set(load("---\n".join(documents)))


def refused(text: str) -> Permanent:
    with pytest.raises(Permanent) as caught:
        compile_set(load(text))
    return caught.value


def terms(rules: tuple[PolicyRule, ...]) -> dict[str, QueueTerms]:
    return {rule.queue: rule for rule in rules if isinstance(rule, QueueTerms)}


def test_documents_keep_their_text_comments_included() -> None:
    first, second = load("# about a\n" + doc("Queue", "a") + "---\n# about b\n" + doc("Queue", "b"))
    assert (first.kind, first.name, second.name) == ("Queue", "a", "b")
    assert first.stored().text == "# about a\n" + doc("Queue", "a")
    assert second.stored().text == "# about b\n" + doc("Queue", "b")
    assert load(second.text)[0].spec == second.spec


def test_a_stored_set_reads_back_as_the_same_rules() -> None:
    documents = load(doc("Queue", "a", "{limit: {gpus: 4}}") + "--- # more\n" + doc("BurstPolicy", "b"))
    again = load("\n---\n".join(document.text for document in documents))
    assert compile_set(again) == compile_set(documents)


def test_empty_documents_are_left_out_and_an_empty_set_has_the_default_queue() -> None:
    assert load("---\n---\n# nothing\n") == ()
    assert compile_set(()) == (QueueTerms(policy="Queue/default", queue="default"),)


def test_a_document_for_the_default_queue_takes_its_place() -> None:
    rules = compiled(doc("Queue", "default", "{max_priority: 40}"))
    assert rules == (QueueTerms(policy="Queue/default", queue="default", max_priority=40),)


def test_off_is_a_word_and_not_false() -> None:
    (rule, _) = compiled(doc("BurstPolicy", "b", "\n  when: {mode: off}"))
    assert isinstance(rule, Filter)
    assert (rule.mode, rule.effect) == (BurstMode.OFF, Effect.DENY)


def test_rules_are_called_after_their_document() -> None:
    rules = compiled(doc("Queue", "a", "{limit: {gpus: 4}}"), doc("BurstPolicy", "b"))
    assert {rule.policy for rule in rules} == {"Queue/a", "BurstPolicy/b", "Queue/default"}


@pytest.mark.parametrize(
    ("text", "field", "line", "says"),
    [
        (doc("Quota", "x"), "$.kind", 2, "Preemption, Queue"),
        (doc("Queue", "x").replace("v1", "v9"), "$.apiVersion", 1, "write federator/v1"),
        (doc("Queue", "x/y"), "$.metadata.name", 3, "letters, digits"),
        (doc("Queue", "x").replace("}", ", title: y}", 1), "$.metadata.title", 3, "known are name"),
        (doc("Queue", "x").replace("spec", "specs"), "$.specs", 4, "did you mean spec?"),
        ("kind: Queue\nmetadata: {name: x}\n", "$.apiVersion", 1, "missing"),
        ("- Queue\n", "$", 1, "mapping"),
        (doc("Queue", "x", "\n  weight: 1\n  limit:\n    gpu: 4"), "$.spec.limit.gpu", 7, "did you mean gpus?"),
        (doc("Queue", "x", "\n  guaranteed: {}"), "$.spec.guaranteed.gpus", 5, "missing"),
        (doc("Queue", "x") + "---\n" + doc("Queue", "x"), "$.metadata.name", 8, "line 1"),
    ],
)  # fmt: skip
def test_a_fault_in_a_document_names_path_line_and_remedy(
    text: str, field: str, line: int, says: str
) -> None:
    error = refused(text)
    assert error.field == field
    assert f"line {line}:" in error.message
    assert says in error.describe()


CONTRADICTIONS: Mapping[str, tuple[str, str, str]] = {
    "two documents for one queue": (
        doc("Queue", "a") + "---\n" + doc("Queue", "b", "\n  path: a"),
        "$.spec.path",
        "already that of Queue/a",
    ),
    "a queue that does not exist": (
        doc("Queue", "paper") + "---\n" + doc("BurstPolicy", "b", "\n  who: {queues: [papers]}"),
        "$.spec.who.queues[0]",
        "known are default, paper",
    ),
    "children guaranteed more than the parent may use": (
        doc("Queue", "a", "\n  limit: {gpus: 10}")
        + "---\n"
        + doc("Queue", "b", "{path: a/b, guaranteed: {gpus: 6}}")
        + "---\n"
        + doc("Queue", "c", "{path: a/c, guaranteed: {gpus: 5}}"),
        "$.spec.limit.gpus",
        "below the 11 that are guaranteed to queues in it (a/b 6, a/c 5)",
    ),
    "a grandchild guaranteed more than the root may use": (
        doc("Queue", "a", "\n  limit: {gpus: 10}")
        + "---\n"
        + doc("Queue", "c", "{path: a/b/c, guaranteed: {gpus: 11}}"),
        "$.spec.limit.gpus",
        "at least 11",
    ),
    "weights of past use where none counts": (
        doc("Queue", "a", "\n  usage_weights: {H100: 2}"),
        "$.spec.usage_weights",
        "usage_half_life",
    ),
}


@pytest.mark.parametrize("case", CONTRADICTIONS)
def test_contradictions_between_documents_are_found(case: str) -> None:
    text, field, says = CONTRADICTIONS[case]
    error = refused(text)
    assert isinstance(error, Invalid)
    assert error.field == field
    assert ", line " in error.message
    assert says in error.describe()


def test_guarantees_within_guarantees_are_not_counted_twice() -> None:
    compiled(
        doc("Queue", "a", "{limit: {gpus: 10}}"),
        doc("Queue", "b", "{path: a/b, guaranteed: {gpus: 10}}"),
        doc("Queue", "c", "{path: a/b/c, guaranteed: {gpus: 6}}"),
    )


def test_a_queue_with_others_below_it_may_be_named_without_a_document_of_its_own() -> None:
    compiled(
        doc("Queue", "v", "{path: research/vision}"),
        doc("BurstPolicy", "b", "{who: {queues: [research, default]}}"),
    )


def test_a_queue_takes_budgets_from_above_and_keeps_its_own() -> None:
    found = terms(
        compiled(
            doc(
                "Queue",
                "a",
                "{deadline_budget: 1d, max_duration: 2d, max_idle: {after: 2h, then: requeue}, max_wait: 10m, patience: 3h,"
                " interactive: true, allow_must: true, usage_weights: {H100: 2}}",
            ),
            doc("Queue", "b", "{path: a/b, max_duration: 1h, patience: 0s, usage_half_life: 7d}"),
            doc("Queue", "c", "{path: a/b/x/c}"),
            doc("Queue", "d", "{path: a/d, max_idle: 1h}"),
        )
    )
    assert [found[q].idle_verb for q in ("a", "a/b/x/c", "a/d", "default")] == [
        "requeue",
        "requeue",
        "cancel",
        None,
    ]
    assert (found["a/b"].deadline_budget_s, found["a/b"].max_duration_s) == (86400.0, 3600.0)
    assert (found["a/b/x/c"].deadline_budget_s, found["a/b/x/c"].max_duration_s) == (86400.0, 3600.0)
    assert found["a/b/x/c"].usage_weights == {"H100": 2.0}
    assert [found[q].max_idle_s for q in ("a", "a/b", "a/b/x/c", "default")] == [7200.0, 7200.0, 7200.0, None]
    assert [found[q].max_wait_s for q in ("a", "a/b", "a/b/x/c", "default")] == [600.0, 600.0, 600.0, None]
    assert [found[q].patience_s for q in ("a", "a/b", "a/b/x/c", "default")] == [10800.0, 0.0, 0.0, None]
    assert not found["a/b"].interactive
    assert not found["a/b"].allow_must


def test_caps_on_priority_and_value_hold_for_all_below() -> None:
    found = terms(
        compiled(
            doc("Queue", "a", "{max_priority: 60, max_value: 100}"),
            doc("Queue", "b", "{path: a/b, max_priority: 90, max_value: 500}"),
            doc("Queue", "c", "{path: a/c, max_priority: 10, max_value: 5}"),
            doc("Queue", "d", "{path: a/d}"),
        )
    )
    assert [(found[q].max_priority, found[q].max_value_usd) for q in ("a/b", "a/c", "a/d")] == [
        (60, 100.0),
        (10, 5.0),
        (60, 100.0),
    ]
    assert found["default"].max_priority == 100


def test_all_faults_of_a_set_are_told_at_once_each_with_its_line() -> None:
    text = """apiVersion: federator/v1
kind: Queue
metadata: {name: a}
spec:
  weight: -1
  max_priority: 200
---
apiVersion: federator/v1
kind: Nonsense
metadata: {name: b}
---
apiVersion: federator/v1
kind: Queue
metadata: {name: a}
"""
    with pytest.raises(ExceptionGroup) as caught:
        compile_set(load(text))
    said = [str(fault) for fault in caught.value.exceptions]
    assert [re.search(r"line (\d+)", each)[1] for each in said] == ["5", "6", "9", "14"]  # type: ignore[index]
    with pytest.raises(ExceptionGroup) as envelopes:
        load("kind: Queue\n---\nkind: Queue\n")
    assert len(envelopes.value.exceptions) == 2


def test_a_mistake_that_shows_in_several_rules_is_told_once() -> None:
    spec = "\n  who: {queues: [nowhere]}\n  usd: {per_day: 10, per_month: 100}"
    with pytest.raises(Invalid, match="there is no queue nowhere"):
        compile_set(load(doc("Budget", "x", spec)))


def reserved(name: str, where: str, hours: str, who: str) -> str:
    spec = f"\n  where: {{{where}}}\n  from: 2030-01-01T{hours[:2]}:00Z\n  until: 2030-01-01T{hours[3:]}:00Z\n  who: {{{who}}}"
    return doc("Reservation", name, spec)


@pytest.mark.parametrize(
    ("other", "says"),
    [
        (reserved("b", "sites: [lab]", "09-11", "owners: [ben]"), "Reservation/a"),
        (reserved("b", "models: [H100]", "07-12", "owners: [ben]"), "nobody could use"),
        (reserved("b", "sites: [lab]", "11-12", "queues: [nowhere]"), "there is no queue nowhere"),
        (reserved("b", "sites: [hall]", "09-11", "owners: [ben]"), ""),
        (reserved("b", "sites: [lab]", "10-11", "owners: [ben]"), ""),
        (reserved("b", "sites: [lab]", "09-11", "owners: [ada]"), ""),
    ],
)
def test_nothing_is_reserved_for_two_that_differ_or_for_a_queue_that_is_not(other: str, says: str) -> None:
    text = "---\n".join([reserved("a", "sites: [lab]", "08-10", "owners: [ada]"), other])
    if not says:
        assert len(compile_set(load(text))) >= 2
        return
    with pytest.raises(Invalid, match=says):
        compile_set(load(text))


def test_what_is_wrong_with_one_document_hides_nothing_of_the_others() -> None:
    text = """apiVersion: federator/v2
kind: Queue
metadata: {name: a/b}
specs: {}
spec: {weigth: 2}
---
apiVersion: federator/v1
kind: Queue
metadata: {name: b}
spec: {limit: {gpu: 3}}
---
apiVersion: federator/v1
kind: Quue
metadata: {name: c}
"""
    with pytest.raises(ExceptionGroup) as caught:
        load(text)
    told = [str(fault) for fault in caught.value.exceptions]
    assert [(fault.split(":")[0], "line " + fault.split("line ")[1].split(":")[0]) for fault in told] == [
        ("$.apiVersion", "line 1"),
        ("$.metadata.name", "line 3"),
        ("$.specs", "line 4"),
        ("$.spec.weigth", "line 5"),
        ("$.spec.limit.gpu", "line 10"),
        ("$.kind", "line 13"),
    ]
