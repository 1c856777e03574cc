"""Jobs that may run in several forms, as users write them."""

from typing import Any

import pytest

from federator.kernel.errors import Invalid, NotSupported
from federator.model.jobs import JobSpec
from federator.wire.jobfile import encode_spec, read_job, read_job_document
from federator.wire.yamltext import read_document


def read(**fields: Any) -> JobSpec:
    return read_job({"run": "true", **fields}, now=0.0).spec


def shapes(spec: JobSpec) -> list[tuple[int, int, float]]:
    """Nodes, GPUs per node and throughput of each form, form 0 first."""
    first = (spec.nodes, spec.resources.gpus.count, 1.0)
    return [first, *((f.nodes, f.resources.gpus.count, f.throughput) for f in spec.forms or ())]


def test_a_job_of_one_size_is_written_as_it_always_was() -> None:
    for word in (b"forms", b"elastic", b"ordered"):
        assert word not in encode_spec(read(nodes=2, resources={"gpus": 4}))


def test_nodes_from_fewest_to_most_with_their_scaling() -> None:
    spec = read(
        nodes=2, min_nodes=1, max_nodes=8, scaling={"1": 1.0, "2": 1.9, "4": 3.5, "8": 6.1},
        resources={"gpus": "A100:4"}, checkpoint={"every": "10m"},
    )  # fmt: skip
    assert shapes(spec) == [(2, 4, 1.0), (1, 4, 1 / 1.9), (4, 4, 3.5 / 1.9), (8, 4, 6.1 / 1.9)]
    assert spec.elastic is True
    assert not spec.ordered


def test_sizes_need_no_quotes() -> None:
    text = "run: 'true'\nmax_nodes: 2\nscaling: {1: 1.0, 2: 1.9}\n"
    assert shapes(read_job_document(read_document(text), now=0.0).spec) == [(1, 0, 1.0), (2, 0, 1.9)]


def test_without_a_scaling_each_doubling_gives_nine_tenths_more() -> None:
    spec = read(min_nodes=1, max_nodes=4)
    assert shapes(spec)[0] == (1, 0, 1.0)
    assert [round(each[2], 2) for each in shapes(spec)] == [1.0, 1.9, 2.77, 3.61]


def test_what_cannot_save_itself_keeps_the_form_that_it_began_in() -> None:
    assert not read(min_nodes=1, max_nodes=2).elastic
    assert read(min_nodes=1, max_nodes=2, checkpoint={}).elastic is True
    assert not read(resources={"any_of": [{"gpus": 1}, {"gpus": 2}]}, checkpoint={}).elastic


def test_of_very_many_nodes_powers_of_two_and_the_ends_are_planned() -> None:
    counts = [nodes for nodes, _, _ in shapes(read(nodes=48, min_nodes=3, max_nodes=100))]
    assert counts == [48, 3, 4, 8, 16, 32, 64, 100]


def test_a_range_of_gpus_per_node() -> None:
    spec = read(resources={"gpus": "A100:80GB:1..4", "cpus": 8})
    assert [each[:2] for each in shapes(spec)] == [(1, 1), (1, 2), (1, 3), (1, 4)]
    last = (spec.forms or ())[-1].resources
    assert (last.gpus.models, last.gpus.memory_mib, last.cpus_milli) == (("A100",), 76294, 8000)
    by_gpus = read(resources={"gpus": "1..2"}, scaling={"1": 2.0, "2": 3.0})
    assert shapes(by_gpus) == [(1, 1, 1.0), (1, 2, 1.5)]


def test_of_a_range_of_gpus_the_sizes_that_its_scaling_names_are_planned() -> None:
    spec = read(resources={"gpus": "A100:1..8"}, scaling={1: 1.0, 2: 1.9, 8: 6.8}, checkpoint={})
    assert shapes(spec) == [(1, 1, 1.0), (1, 2, 1.9), (1, 8, 6.8)]
    assert spec.elastic is True
    wide = read(resources={"gpus": {"count": "1..128", "models": ["A100"]}}, scaling={1: 1.0, 24: 20.0})
    assert shapes(wide) == [(1, 1, 1.0), (1, 24, 20.0)]


def test_of_several_ranges_each_has_the_sizes_that_are_named_within_it() -> None:
    entries = [{"gpus": "A100:1..8"}, {"gpus": "H100:2..4"}, {"gpus": "T4:16"}]
    spec = read(resources={"any_of": entries}, scaling={1: 1.0, 4: 3.0, 16: 9.0})
    assert [(f.option, f.resources.gpus.count, f.throughput) for f in spec.forms or ()] == [
        (0, 4, 3.0), (1, 4, 3.0), (2, 16, 9.0),
    ]  # fmt: skip
    assert not spec.elastic


@pytest.mark.parametrize("name", ["any_of", "ordered"])
def test_a_list_of_resources(name: str) -> None:
    spec = read(resources={name: [{"gpus": "A100:8"}, {"gpus": "H100:4", "cpus": 16}], "memory": "64GiB"})
    (other,) = spec.forms or ()
    assert spec.resources.gpus.models == ("A100",)
    assert (other.resources.gpus.models, other.resources.cpus_milli) == (("H100",), 16000)
    assert (spec.resources.memory_mib, other.resources.memory_mib) == (65536, 65536)
    assert (other.option, bool(spec.ordered)) == (1, name == "ordered")


def test_lists_and_ranges_combine() -> None:
    spec = read(resources={"ordered": [{"gpus": "H100:1..2"}, {"gpus": "A100:1..4"}]})
    assert [(f.option, f.resources.gpus.count) for f in spec.forms or ()] == [
        (0, 2), (1, 1), (1, 2), (1, 3), (1, 4),
    ]  # fmt: skip
    spec = read(min_nodes=1, max_nodes=2, resources={"any_of": [{"gpus": 1}, {"gpus": 2}]})
    assert [each[:2] for each in shapes(spec)] == [(1, 1), (2, 1), (1, 2), (2, 2)]


@pytest.mark.parametrize(
    ("document", "field", "says"),
    [
        ({"nodes": 2, "min_nodes": 3}, "$.min_nodes", "more than nodes, 2"),
        ({"nodes": 2, "max_nodes": 1}, "$.max_nodes", "less than the 2 nodes"),
        ({"max_nodes": 0}, "$.max_nodes", "1"),
        ({"scaling": {"1": 1.0}}, "$.scaling", "one size"),
        ({"max_nodes": 2, "scaling": {"2": 1.0}}, "$.scaling", "1 nodes"),
        ({"max_nodes": 2, "scaling": {"1": 1.0, "4": 3.0}}, "$.scaling", "names 4"),
        ({"max_nodes": 2, "scaling": {"one": 1.0}}, "$.scaling", "'one'"),
        ({"max_nodes": 2, "scaling": {"1": 0.001, "2": 1.1}}, "$.scaling", "1000 times"),
        ({"max_nodes": 2, "scaling": {"1": 0, "2": 1}}, "$.scaling.1", "1e-06"),
        ({"resources": {"gpus": "1..2"}, "scaling": {"1": 1.0}}, "$.scaling", "2 GPUs"),
        ({"max_nodes": 4, "scaling": {1: 1.0}}, "$.scaling", "one size only (name two or more sizes from 1 to 4 nodes"),
        ({"resources": {"gpus": "1..4"}, "scaling": {1: 1.0}}, "$.scaling", "sizes from 1 to 4 GPUs"),
        ({"resources": {"gpus": "1..4"}, "scaling": {2: 1.0, 4: 2}}, "$.scaling", "no value for 1 GPUs (add 1)"),
        ({"resources": {"gpus": "1..4"}, "scaling": {1: 1.0, 8: 2}}, "$.scaling", "names 8"),
        ({"resources": {"any_of": [{"gpus": "1..4"}, {"gpus": "6..8"}]}, "scaling": {1: 1.0, 4: 3}}, "$.scaling", "no value for 6"),
        ({"resources": {"any_of": [{"gpus": "1..4"}, {"cpus": 8}]}, "scaling": {1: 1.0, 4: 3}}, "$.scaling", "ask for GPUs"),
        ({"resources": {"gpus": "0.4..1"}, "scaling": {1: 1.0, 2: 2}}, "$.scaling", "whole GPUs"),
        ({"max_nodes": 2, "scaling": {1: 1.0, 2: 1.9, "2": 5}}, "$.scaling", "gives two values for 2 (keep one"),
        ({"max_nodes": 2, "scaling": {1: 1.0, "02": 1.9}}, "$.scaling", "'02'"),
        ({"max_nodes": 2, "scaling": {1: 1.0, "9" * 5000: 1.9}}, "$.scaling", "not a number of nodes"),
        ({"max_nodes": 2, "scaling": {True: 1.0, 2: 1.9}}, "$.scaling", "true"),
        ({"resources": {"gpus": {"count": "A100:1..4"}}}, "$.resources.gpus.count", "(write count: 1..4, and models"),
        ({"resources": {"gpus": {"count": "0.4..1:A100"}}}, "$.resources.gpus.count", "(write count: 0.4..1, and models"),
        ({"resources": {"gpus": {"count": float("inf")}}}, "$.resources.gpus.count", "write a number"),
        ({"resources": {"gpus": "1..2"}, "max_nodes": 2}, "$.resources.gpus", "so are the nodes"),
        ({"resources": {"gpus": "4..2"}}, "$.resources.gpus", "not a range"),
        ({"resources": {"gpus": "0..2"}}, "$.resources.gpus", "not a range"),
        ({"resources": {"any_of": []}}, "$.resources.any_of", "write at least 1"),
        ({"resources": {"any_of": [1]}}, "$.resources.any_of[0]", ""),
        ({"resources": {"any_of": [{"gpu": 1}]}}, "$.resources.any_of[0].gpu", "gpus"),
        ({"resources": {"any_of": [{"gpus": 1}, {"gpus": 1}]}}, "$.resources", "twice"),
        ({"resources": {"any_of": [{"gpus": 1}], "ordered": [{"gpus": 1}]}}, "$.resources.ordered", "any_of"),
        ({"max_nodes": 2, "resources": {"any_of": [{"gpus": n} for n in range(1, 10)]}}, "$.resources", "18 ways"),
        ({"any_of": [{"gpus": 1}]}, "$.any_of", "resources.any_of"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named_with_a_remedy(document: dict[str, Any], field: str, says: str) -> None:
    with pytest.raises(Invalid) as caught:
        read(**document)
    assert caught.value.field == field
    assert says in f"{caught.value.message} ({caught.value.remedy})"
    assert caught.value.remedy


def test_a_part_of_a_gpu_may_be_squeezed() -> None:
    spec = read(resources={"gpus": "A100:0.4..0.75"})
    assert spec.resources.gpus.total == 0.4
    assert [form.resources.gpus.total for form in spec.forms or ()] == [0.5, 0.6, 0.7, 0.75]
    assert {form.resources.gpus.models for form in spec.forms or ()} == {("A100",)}
    rates = [form.throughput for form in spec.forms or ()]
    assert rates == sorted(rates)
    assert rates[0] > 1.0


@pytest.mark.parametrize("gpus", ["0.5..0.4", "0.1..1..2", "0.4..1.5"])
def test_what_is_no_range_of_parts_is_refused(gpus: str) -> None:
    with pytest.raises((Invalid, NotSupported)) as caught:
        read(resources={"gpus": gpus})
    assert caught.value.field == "$.resources.gpus"


def test_a_spec_as_one_of_its_forms_has_no_others() -> None:
    spec = read(min_nodes=1, max_nodes=2, checkpoint={})
    assert spec.as_form(0) is spec
    wide = spec.as_form(1)
    assert (wide.nodes, bool(wide.forms), bool(wide.elastic)) == (2, False, False)


@pytest.mark.parametrize(
    "asked",
    [
        {"nodes": 2, "resources": {"gpus": 0.5}},
        {"nodes": 2, "resources": {"any_of": [{"gpus": 4}, {"gpus": 0.5}]}},
        {"max_nodes": 2, "resources": {"ordered": [{"gpus": 4}, {"gpus": "A100:0.5"}]}},
        {"nodes": 2, "resources": {"any_of": [{"gpus": 4}, {"gpus": "0.4..1"}]}},
    ],
)
def test_nodes_apart_have_whole_gpus_in_every_form(asked: dict[str, Any]) -> None:
    assert read(**asked).forms is not None
    with pytest.raises(NotSupported) as caught:
        read(**asked, placement={"together": "spread"})
    assert caught.value.field == "$.placement.together"
    assert caught.value.remedy == "ask for whole GPUs, or leave it out"


@pytest.mark.parametrize(
    ("fields", "sizes"),
    [
        (
            {"min_nodes": 3, "nodes": 5, "max_nodes": 40},
            "of 3 to 40 nodes it may run on 3, 4, 5, 8, 16, 32 or 40;",
        ),
        ({"resources": {"gpus": "A100:1..32"}}, "of 1 to 32 GPUs it may run on 1, 2, 4, 8, 16 or 32;"),
    ],
)
def test_sizes_that_are_left_out_are_said(fields: dict[str, object], sizes: str) -> None:
    (note,) = read_job({"run": "x", **fields}, now=0.0).notes
    assert note.startswith(sizes)
    assert "scaling" in note


@pytest.mark.parametrize(
    "fields",
    [
        {"min_nodes": 1, "max_nodes": 16},
        {"min_nodes": 1, "max_nodes": 40, "scaling": {1: 1.0, 40: 20.0}},
        {"resources": {"gpus": "0.4..1"}},
        {"resources": {"any_of": [{"gpus": 1}, {"gpus": 8}]}},
        {"resources": {"gpus": "A100:1..8"}},
    ],
)
def test_nothing_is_said_where_all_sizes_are_planned_or_were_chosen(fields: dict[str, object]) -> None:
    assert read_job({"run": "x", **fields}, now=0.0).notes == ()


@pytest.mark.parametrize(
    ("document", "planned"),
    [
        ({"max_nodes": 9, "resources": {"any_of": [{"gpus": 1}, {"gpus": 2}]}}, [1, 2, 3, 4, 6, 7, 8, 9]),
        ({"min_nodes": 3, "nodes": 7, "max_nodes": 40, "resources": {"any_of": [{"gpus": n} for n in (1, 2, 3)]}}, [3, 7, 8, 32, 40]),
        ({"min_nodes": 3, "max_nodes": 40, "resources": {"any_of": [{"gpus": n} for n in range(1, 9)]}}, [3, 40]),
    ],
)  # fmt: skip
def test_of_a_range_beside_a_list_so_much_is_planned_that_each_entry_has_room(
    document: dict[str, Any], planned: list[int]
) -> None:
    request = read_job({"run": "x", **document}, now=0.0)
    spec = request.spec
    assert isinstance(spec.forms, tuple)
    counts = {0: {spec.nodes}}
    for form in spec.forms:
        counts.setdefault(form.option, set()).add(form.nodes)
    assert [sorted(each) for each in counts.values()] == [planned] * len(document["resources"]["any_of"])
    assert any("it may run on" in note for note in request.notes)


def test_of_ranges_of_gpus_in_a_list_too() -> None:
    request = read_job({"run": "x", "resources": {"any_of": [{"gpus": f"{model}:1..12"} for model in ("A100", "H100")]}}, now=0.0)  # fmt: skip
    assert isinstance(request.spec.forms, tuple)
    assert len(request.spec.forms) == 15
    assert request.spec.resources.gpus.count == 1
    assert {form.resources.gpus.count for form in request.spec.forms} >= {1, 12}
