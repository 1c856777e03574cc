"""A job names files for its data that are the agent's to read or write, and not its own."""

from pathlib import Path

import pytest

from federator.kernel.clock import SystemClock
from federator.model.jobs import Checkpoint, Input, JobSpec
from federator.model.whose import Whose
from federator_agent.data.allowed import Allowed
from federator_agent.data.carrier import Carrier
from federator_agent.staging_errors import StagingRefused

DEFAULT = Whose("default")


def reads(uri: str) -> JobSpec:
    return JobSpec(name="job", run="x", inputs=(Input(uri),))


def saves(uri: str) -> JobSpec:
    return JobSpec(name="job", run="x", checkpoint=Checkpoint(uri=uri))


@pytest.mark.parametrize("below", ["", "key", "inputs/0123/data", "../state/host.key", "way-in/key"])
@pytest.mark.parametrize("told", [None, "everything"])
def test_no_job_names_what_is_in_the_agents_own_folder(tmp_path: Path, below: str, told: str | None) -> None:
    state = tmp_path / "state"
    state.mkdir()
    (state / "way-in").symlink_to(state)
    allowed = None if told is None else (Allowed("file:///"),)
    carrier = Carrier(state, SystemClock(), None, allowed)
    for spec in (reads(f"file://{state}/{below}"), saves(f"file://{state}/{below}")):
        with pytest.raises(StagingRefused, match=r"the agent's own; no job may name it|moves no data"):
            carrier.check(spec, DEFAULT)


def test_a_link_from_elsewhere_or_a_folder_above_leads_in_no_more(tmp_path: Path) -> None:
    state = tmp_path / "state"
    state.mkdir()
    (tmp_path / "door").symlink_to(state)
    carrier = Carrier(state, SystemClock())
    for uri in (f"file://{tmp_path}/door/key", f"file://{tmp_path}", "file:///"):
        with pytest.raises(StagingRefused, match="the agent's own"):
            carrier.check(reads(uri), DEFAULT)
    carrier.check(reads(f"file://{tmp_path}/data"), DEFAULT)


def test_an_agent_with_more_rights_than_its_jobs_saves_to_no_files_that_its_site_has_not_named(
    tmp_path: Path,
) -> None:
    """A root agent that writes where a job says would make the job root."""
    state = tmp_path / "state"
    state.mkdir()
    with pytest.raises(StagingRefused, match="its data_addresses name no files for checkpoints"):
        Carrier(state, SystemClock(), apart=True).check(saves("file:///etc/cron.d"), DEFAULT)
    Carrier(state, SystemClock(), apart=True).check(saves("s3://bucket/mine"), DEFAULT)
    Carrier(state, SystemClock(), apart=True).check(reads(f"file://{tmp_path}/data"), DEFAULT)
    Carrier(state, SystemClock()).check(saves(f"file://{tmp_path}/saved"), DEFAULT)
    named = (Allowed(f"file://{tmp_path}/saved"),)
    Carrier(state, SystemClock(), None, named, apart=True).check(saves(f"file://{tmp_path}/saved/a"), DEFAULT)
