"""What a job needs beside hardware, in the words by which sites say that they have it."""

from federator.model.jobs import Checkpoint, Input, JobSpec
from federator.model.sites import SiteReport
from federator.wire.needs import DATA, FORMS, abilities_of, needs_of


def test_inputs_and_a_place_for_checkpoints_need_a_site_that_brings_data() -> None:
    plain = JobSpec(name="job", run="true", checkpoint=Checkpoint(every_s=60.0))
    assert needs_of(plain) == ()
    assert needs_of(JobSpec(name="job", run="true", inputs=(Input("s3://team/set"),))) == (DATA,)
    assert needs_of(JobSpec(name="job", run="true", checkpoint=Checkpoint(uri="s3://team/saved"))) == (DATA,)


def test_agents_from_before_the_word_bring_data_but_not_to_pods() -> None:
    before = SiteReport(taken_at=1.0, pools=(), abilities=(FORMS,))
    assert abilities_of(before) == (FORMS, DATA)
    assert abilities_of(SiteReport(taken_at=1.0, pools=(), runtime="slurm")) == (DATA,)
    assert abilities_of(SiteReport(taken_at=1.0, pools=(), runtime="kube")) == ()
    assert abilities_of(SiteReport(taken_at=1.0, pools=(), runtime="kube", abilities=(DATA,))) == (DATA,)
