"""Other ways to run, for jobs at random."""

from hypothesis import strategies as st

from federator.model.jobs import Accelerators, Form, Resources


@st.composite
def forms_at_random(draw: st.DrawFn) -> tuple[Form, ...]:
    """Other ways to run: wider, narrower, on other GPUs, quicker than they should be, or just the same."""
    return tuple(
        Form(
            nodes=draw(st.sampled_from([1, 1, 2, 3])),
            resources=Resources(
                gpus=Accelerators(
                    count=draw(st.sampled_from([0, 1, 2, 4])),
                    models=draw(st.sampled_from([(), (), ("A100",), ("H100",)])),
                ),
                cpus_milli=draw(st.sampled_from([0, 1000, 3000])),
            ),
            throughput=draw(st.sampled_from([0.5, 1.0, 1.9, 3.5])),
            option=draw(st.integers(0, 2)),
        )
        for _ in range(draw(st.integers(1, 3)))
    )
