"""Whatever a job file holds, it is read or refused, and nothing else comes out."""

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from federator.kernel.errors import FederatorError
from federator.model.jobs import JobSpec
from federator.wire.jobfile import JobFile, encode_spec, read_job

NOW = 1_760_000_000.0


VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=20)
    | st.sampled_from(["4", "A100:4", "1h", "0-9", "must", "10**9"]),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text(max_size=8) | st.sampled_from(JobFile.__struct_fields__), inner, max_size=4)
    ),
    max_leaves=12,
)


@given(st.dictionaries(st.sampled_from([*JobFile.__struct_fields__, "other"]), VALUES, max_size=6) | VALUES)
def test_hostile_documents_are_read_or_refused(document: object) -> None:
    try:
        request = read_job(document, now=NOW)
    except FederatorError as error:
        error.describe().encode()
    else:
        assert msgspec.json.decode(encode_spec(request.spec), type=JobSpec) == request.spec


NESTED = st.fixed_dictionaries(
    {"run": st.just("x")},
    optional={
        "resources": st.dictionaries(
            st.sampled_from(["gpus", "accelerators", "cpus", "memory", "shm"]), VALUES, max_size=3
        ),
        "checkpoint": st.dictionaries(st.sampled_from(["signal", "grace", "every"]), VALUES, max_size=3),
        "retry": st.dictionaries(st.sampled_from(["on", "max", "backoff"]), VALUES, max_size=3),
        "placement": st.dictionaries(
            st.sampled_from(["kinds", "sites", "not_sites", "labels"]), VALUES, max_size=3
        ),
        "env": st.dictionaries(st.text(max_size=5), VALUES, max_size=3),
        "name": st.just("again"),
        "every": st.dictionaries(st.sampled_from(["at", "interval", "keep", "end"]), VALUES, max_size=3),
    },
)


@given(NESTED)
def test_hostile_parts_are_read_or_refused(document: object) -> None:
    try:
        read_job(document, now=NOW)
    except FederatorError as error:
        error.describe().encode()
