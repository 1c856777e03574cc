"""Whatever stands for nodes, sizes and resources, a job file is read or refused with its field: no other error comes out."""

from collections import Counter
from typing import Any

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from federator.kernel.errors import FederatorError
from federator.wire.jobfile import encode_spec, read_job

INF = float("inf")
the_same_files = settings(
    max_examples=2000, deadline=None, derandomize=True, database=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck)
)  # fmt: skip
odd_keys = st.sampled_from(
    [None, True, 0, -1, 4097, 10**400, 0.5, 1.0, INF, -INF, float("nan"), "", "02", " 2 ", "٢", "²", "\0", "\ud800"]
)  # fmt: skip
odd = odd_keys | st.sampled_from([[], [1], {}, {"1": 1}, (1,), b"1", "x" * 70_000])
asked = st.sampled_from(
    [
        "A100:4", "A100|H100:80GB:4", "A100:0.5", "0.4..1", "A100:1..8", "1..8", "1..4:A100:80GB", "1..128", " 1..4 ",
        "A100:0.4..1", "128..129", "1..1", "..", "1..", "0..0.5", "1..8:1..4", "1..8:4", "0.4..1:0.4", "0.4..1:1..2",
        "٢..٤", "²..³", "999999999..999999999", "80GB..1", "A100:²", ":::", 1, 2, 8, 0.5, 1.5,
    ]
)  # fmt: skip
written_out = st.fixed_dictionaries(
    {}, optional={"count": asked | odd, "models": st.just(["A100"]) | odd, "memory": st.just("80GB") | odd}
)
gpus = asked | written_out | odd
entry = st.fixed_dictionaries({}, optional={"gpus": gpus, "cpus": st.just(8) | odd, "memory": odd})
entries = st.lists(st.fixed_dictionaries({"gpus": asked}) | entry | odd, max_size=4)
resources = (
    st.fixed_dictionaries({"gpus": asked})
    | entry
    | st.fixed_dictionaries({}, optional={"any_of": entries, "ordered": entries, "cpus": odd})
    | odd
)
nodes = st.sampled_from([1, 2, 3, 4, 8]) | odd
sizes = st.sampled_from([1, 2, 4, 8, "1", "2"])
scaling = (
    st.dictionaries(sizes, st.just(1.9), min_size=1, max_size=4)
    | st.dictionaries(sizes | odd_keys, st.just(1.9) | odd, max_size=4)
    | odd
)
files = st.fixed_dictionaries(
    {"run": st.just("true")},
    optional={
        "nodes": nodes, "min_nodes": nodes, "max_nodes": nodes, "scaling": scaling, "resources": resources,
        "checkpoint": st.just({}), "placement": st.fixed_dictionaries({"together": st.sampled_from(["host", "spread"]) | odd}),
    },
)  # fmt: skip

ranged = st.fixed_dictionaries({"max_nodes": st.just(8)}) | st.fixed_dictionaries(
    {"resources": st.fixed_dictionaries({"gpus": st.sampled_from(["1..8", "A100:1..8", "1..128"])})}
)
scaled = st.builds(
    lambda size, scaling: {"run": "true", **size, "scaling": {1: 1.0, **scaling}},
    ranged,
    st.dictionaries(st.integers(1, 9) | st.sampled_from(["2", "4", "02"]), st.just(1.9), max_size=4),
)
"""Files that differ little from those that are meant."""
counted = st.builds(
    lambda count, rest: {"run": "true", "resources": {"gpus": {"count": count, **rest}}},
    asked | odd,
    st.fixed_dictionaries({}, optional={"models": st.just(["A100"])}),
)


def test_a_job_file_is_read_or_refused_and_nothing_else() -> None:
    seen: Counter[str] = Counter()

    @the_same_files
    @given(files | scaled | counted)
    def holds(file: dict[str, Any]) -> None:
        try:
            spec = read_job(file, now=0.0).spec
        except FederatorError as error:
            seen["refused" if (error.field or "").startswith("$.") else f"without its field: {error}"] += 1
            return
        encode_spec(spec)
        seen["read"] += 1
        seen["in several forms"] += bool(spec.forms)
        if file.get("scaling"):
            planned = {spec.nodes * spec.resources.gpus.count or spec.nodes}
            planned |= {form.nodes * form.resources.gpus.count or form.nodes for form in spec.forms or ()}
            seen["as scaling says"] += planned == {int(size) for size in file["scaling"]}

    holds()
    assert not [said for said in seen if said.startswith("without")], seen
    assert seen["refused"] > 500, seen
    assert seen["in several forms"] > 50, seen
    assert seen["as scaling says"] > 100, seen
