"""The files under deploy/examples are accepted by the programs that read them, and say what their comments say."""

import shutil
from pathlib import Path

import pytest

from federator.cli.jobfiles import read_one
from federator.config import load_settings
from federator.kernel.clock import SystemClock
from federator.model.whose import Whose
from federator.store.etcd_link import read_endpoints
from federator.wire.servicefile import read_service
from federator_agent.config import load
from federator_agent.core.lent_capacity import lent_hosts
from federator_providers.local import provider

EXAMPLES = Path(__file__).resolve().parents[2] / "deploy" / "examples"
READ_HERE = {"dispatcher.yaml", "dispatcher-etcd.yaml", "service.yaml", "site.yaml"}


def test_every_example_is_read_by_a_test() -> None:
    assert {path.name for path in EXAMPLES.iterdir()} == READ_HERE


def test_the_dispatcher_starts_with_its_example(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("FEDERATOR_STATE_DIR", "FEDERATOR_PORT", "FEDERATOR_CLOCK"):
        monkeypatch.delenv(variable, raising=False)
    settings = load_settings(EXAMPLES / "dispatcher.yaml")
    assert (settings.server.port, settings.retention.jobs_s) == (7070, 30 * 86400)


def test_one_of_several_dispatchers_starts_with_its_example(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("FEDERATOR_STATE_DIR", "FEDERATOR_PORT", "FEDERATOR_CLOCK"):
        monkeypatch.delenv(variable, raising=False)
    etcd = load_settings(EXAMPLES / "dispatcher-etcd.yaml").store.etcd
    assert etcd is not None
    assert read_endpoints(etcd.endpoints) == (["etcd-1:2379", "etcd-2:2379", "etcd-3:2379"], True)


async def test_its_provider_has_the_offers_that_it_names(tmp_path: Path) -> None:
    trial = load_settings(EXAMPLES / "dispatcher.yaml").providers["trial"]
    rents = provider("trial", {**trial.settings, "state_dir": str(tmp_path)}, SystemClock())
    offers = {offer.instance_type: offer for offer in await rents.offers()}
    await rents.close()
    assert {name: offer.available for name, offer in offers.items()} == {"a2-highgpu-1g": 4, "g6.xlarge": 8}
    assert offers["g6.xlarge"].delay_s == 120


def test_the_site_lends_six_of_its_eight_gpus_to_research_at_night(tmp_path: Path) -> None:
    file = shutil.copy(EXAMPLES / "site.yaml", tmp_path)
    site = load(Path(file), {}).site
    (pool,) = site.pools
    assert sum(len(host.gpus) for host in lent_hosts(site, pool)) == 6
    assert site.lend.serves(Whose("research/vision"))
    assert not site.lend.serves(Whose("sales"))
    noon_in_zurich = 1_767_265_200.0
    assert not site.lend.open_at(noon_in_zurich)
    assert site.lend.open_at(noon_in_zurich + 12 * 3600)


def test_the_service_may_grow_to_six_replicas() -> None:
    written = read_one(EXAMPLES / "service.yaml", read=read_service)
    asked = read_service(written.document, now=0.0)
    assert (asked.name, asked.scale.least, asked.scale.most) == ("chat", 1, 6)
    assert asked.request.max_duration_s == 24 * 3600
    assert asked.request.deadline_at == 24 * 3600 + 600
