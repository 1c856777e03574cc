"""The site says which addresses its credentials serve, and for whose jobs."""

from pathlib import Path

import pytest

from federator.kernel.clock import SystemClock
from federator.kernel.errors import Invalid
from federator.model.jobs import Checkpoint, Input, JobSpec
from federator.model.whose import Whose
from federator.wire.decoding import decode
from federator_agent import config
from federator_agent.data.allowed import Addresses, Allowed, DataRules, allowed_of
from federator_agent.data.carrier import Carrier
from federator_agent.staging_errors import StagingRefused


def reads(*uris: str) -> JobSpec:
    return JobSpec(name="job", run="x", inputs=tuple(map(Input, uris)))


def test_without_a_word_all_addresses_are_allowed_and_with_an_empty_list_none() -> None:
    DataRules().check(reads("s3://any/where"), Whose("research"))
    with pytest.raises(StagingRefused, match="s3://any/where for queue research"):
        DataRules(()).check(reads("s3://any/where"), Whose("research"))
    DataRules(()).check(JobSpec(name="job", run="x"), Whose("research"))


@pytest.mark.parametrize(
    ("uri", "allowed"),
    [
        ("s3://data", True),
        ("s3://data/sets/a", True),
        ("s3://database", False),
        ("s3://other/data", False),
        ("https://host/data", True),
        ("https://HOST/data/a", True),
        ("https://host/data%2Fa", True),
        ("https://host/dat", False),
        ("https://host:8443/data/a", False),
        ("http://host/data/a", False),
    ],
)
def test_an_address_is_allowed_by_one_that_it_lies_below(uri: str, *, allowed: bool) -> None:
    known = allowed_of(decode(["s3://data/", "https://host/data"], Addresses, "$"))
    if allowed:
        DataRules(known).check(reads(uri), Whose(""))
    else:
        with pytest.raises(StagingRefused):
            DataRules(known).check(reads(uri), Whose(""))


def test_some_are_for_the_jobs_of_some_queues() -> None:
    known = (Allowed("s3://all"), Allowed("s3://ours", ("research/vision",)))
    DataRules(known).check(reads("s3://all/a", "s3://ours/a"), Whose("research/vision/a"))
    with pytest.raises(StagingRefused, match="s3://ours/a"):
        DataRules(known).check(reads("s3://all/a", "s3://ours/a"), Whose("research"))


def test_what_a_job_saves_counts_as_what_it_reads() -> None:
    spec = JobSpec(name="job", run="x", checkpoint=Checkpoint(uri="s3://others/saved"))
    with pytest.raises(StagingRefused, match="s3://others/saved"):
        DataRules((Allowed("s3://ours"),)).check(spec, Whose("research"))


def test_a_link_out_of_an_allowed_folder_is_refused(tmp_path: Path) -> None:
    inside, outside = tmp_path / "data", tmp_path / "keys"
    inside.mkdir()
    outside.mkdir()
    (inside / "way-out").symlink_to(outside)
    (tmp_path / "way-in").symlink_to(inside)
    DataRules((Allowed(f"file://{inside}"),)).check(reads(f"file://{inside}/a"), Whose(""))
    DataRules((Allowed(f"file://{tmp_path}/way-in"),)).check(reads(f"file://{tmp_path}/way-in/a"), Whose(""))
    for uri in (f"file://{inside}/way-out/a", f"file://{outside}"):
        with pytest.raises(StagingRefused):
            DataRules((Allowed(f"file://{inside}"),)).check(reads(uri), Whose(""))


def test_the_site_file_says_it_and_the_carrier_holds_it(tmp_path: Path) -> None:
    text = "site: a\ndata_addresses: [s3://all, {address: s3://ours, queues: [research]}]"
    known = config.parse(text, "site.yaml", {}).data_addresses
    assert known == (Allowed("s3://all"), Allowed("s3://ours", ("research",)))
    carrier = Carrier(tmp_path, SystemClock(), None, known)
    carrier.check(reads("s3://ours/a"), Whose("research"))
    with pytest.raises(StagingRefused):
        carrier.check(reads("s3://ours/a"), Whose("teaching"))
    assert config.parse("site: a", "site.yaml", {}).data_addresses is None


@pytest.mark.parametrize(
    ("written", "field"),
    [
        ("s3://all", r"\$\.data_addresses"),
        (["ftp://all"], r"\$\.data_addresses\[0\]"),
        ([{"queues": ["a"]}], r"\$\.data_addresses\[0\]\.address"),
        ([{"address": "s3://all", "for": "a"}], r"\$\.data_addresses\[0\]\.for"),
    ],
)
def test_what_is_wrong_is_named(written: object, field: str) -> None:
    with pytest.raises(Invalid, match=field):
        decode(written, Addresses, "$.data_addresses")
