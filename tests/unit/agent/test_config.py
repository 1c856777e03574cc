"""The site file: what it means, and what is said when it is wrong."""

from pathlib import Path

import pytest

from federator.kernel.errors import Invalid
from federator.model.sites import SiteKind
from federator_agent import config
from federator_agent.__main__ import main
from federator_agent.config import USER_DATA_VARIABLE, AgentSettings
from federator_agent.core.capacity_report import site_report
from federator_agent.core.events import Now
from federator_agent.core.lent_capacity import Hours
from federator_agent.core.state import State
from federator_agent.site_file import SiteFile, UserData

FULL = """
site: basel
kind: edge
region: eu-central
labels: {rack: r1}
price_per_gpu_hour: 0.5 USD
dispatcher: http://127.0.0.1:7070/
member: basel-1
address: 10.0.0.5
state_dir: /tmp/basel
clock: scaled:60@1760000000
report_every: 2s
pools:
  - {name: a100, model: A100, gpu_memory: 80GiB, nodes: 2, gpus_per_node: 4, cpus_per_node: 1.5, memory_per_node: 64GiB}
  - name: cpu
    gpus_per_node: 0
lend:
  gpus: {a100: 6}
  pools: [a100]
  hours: 18:00-08:00
  timezone: Europe/Zurich
  queues: [research/vision]
"""


def parse(text: str, record: type[SiteFile] = SiteFile) -> AgentSettings:
    return config.parse(text, "site.yaml", {"PATH": "/bin", "LC_ALL": "C", "AWS_SECRET": "x"}, record)


def test_every_field_has_its_meaning() -> None:
    settings = parse(FULL)
    site, pool = settings.site, settings.site.pools[0]
    assert (site.name, settings.kind, settings.member) == ("basel", SiteKind.EDGE, "basel-1")
    assert settings.address == "10.0.0.5"
    assert site.labels == {"region": "eu-central", "rack": "r1"}
    assert (site.price_usd_gpu_h, settings.report_every_s) == (0.5, 2.0)
    assert (settings.dispatcher, settings.state_dir) == ("http://127.0.0.1:7070", Path("/tmp/basel"))
    assert (pool.model, pool.gpu_memory_mib, pool.nodes, pool.gpus_per_node) == ("A100", 81920, 2, 4)
    assert (pool.cpus_milli_per_node, pool.memory_mib_per_node) == (1500, 65536)
    assert (site.lend.gpus, site.lend.pools, site.lend.queues) == (
        {"a100": 6},
        ("a100",),
        ("research/vision",),
    )
    assert site.lend.hours == (Hours(18 * 60, 8 * 60, "Europe/Zurich"),)


def test_the_labels_of_a_pool_are_also_those_of_its_shared_gpus() -> None:
    text = "site: a\npools: [{name: p, model: A100, gpus_per_node: 4, shared: 2, labels: {rack: r1, row: 7}}]"
    assert [pool.labels for pool in parse(text).site.pools] == [(("rack", "r1"), ("row", "7"))] * 2


def test_what_is_not_declared_is_looked_up_on_the_host() -> None:
    pool = parse("site: basel").site.pools[0]
    assert pool.name == "default"
    assert pool.cpus_milli_per_node >= 1000
    assert pool.memory_mib_per_node > 100


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("kind: onprem", ["$.site", "site: basel"]),
        ("site: a\nkindd: edge", ["line 2", "$.kindd", "did you mean kind?"]),
        ("site: a\npools:\n  - name: x\n    gpu_mem: 80GB", ["line 4", "$.pools[0].gpu_mem", "gpu_memory"]),
        ("site: a\npools: [{name: x, gpus_per_node: 2}]", ["line 2", "$.pools[0].model"]),
        ("site: a\npools: [{name: x, gpus_per_node: 0}, {name: x, gpus_per_node: 0}]", ["two pools"]),
        ("site: a\nlend:\n  hours: at night", ["line 3", "$.lend.hours", "18:00-08:00"]),
        ("site: a\nlend:\n  hours: [1:00-5:00, sad 1:00-5:00]", ["$.lend.hours[1]", "sat-sun 00:00-24:00"]),
        ("site: a\nlend:\n  hours: 08:00-08:00", ["$.lend.hours", "00:00-24:00 for the whole day"]),
        ("site: a\nlend: {hours: 8:00-9:00, timezone: Atlantis}", ["$.lend.timezone", "Europe/Zurich"]),
        ("site: a\nlend: {gpus: {nowhere: 3}}", ["$.lend.gpus.nowhere"]),
        ("site: a\nclock: fast", ["line 2", "$.clock", "scaled:"]),
        ("site: a\nreport_every: 5", ["$.report_every", "no unit"]),
        ("site: a\ndispatcher: localhost", ["$.dispatcher", "http://"]),
        ("site: a\njoin_token: secret", ["$.join_token"]),
        ("site: a\nwatch_gpus: sometimes", ["line 2", "$.watch_gpus", "true or false"]),
        ("site: a\nelectricity: {usd_per_kwh: {}}", ["$.electricity.usd_per_kwh", "names no time"]),
        ('site: a\nelectricity: {usd_per_kwh: {"25:00": 1}}', ["$.electricity.usd_per_kwh.25:00", '"06:00"']),
        ("site: a\nelectricity: {gco2_per_kwh: -1}", ["$.electricity.gco2_per_kwh"]),
        (
            "site: a\nelectricity: {usd_per_kg_co2: 0.1, gco2_per_kwh: 40}",
            ["$.electricity.usd_per_kg_co2", "without gpu_watts"],
        ),
        (
            "site: a\nelectricity: {usd_per_kg_co2: 0.1, gpu_watts: 700}",
            ["$.electricity.usd_per_kg_co2", "without gco2_per_kwh"],
        ),
        ("site: a\nelectricity: {timezone: Atlantis}", ["$.electricity.timezone", "Europe/Zurich"]),
        ("site: a\ngpu_probe: {command: exit 3}", ["$.pools", "gpu_probe ends with exit code 3"]),
        (
            "site: a\npools: [{name: a, gpus_per_node: 0}]\ngpu_probe: {command: x, visible: rocr}",
            ["$.gpu_probe.visible"],
        ),
        (
            "site: a\ngpu_probe: {command: x, visible: V}\nslurm: {shared_dir: /s}",
            ["$.gpu_probe", "a cluster counts its own devices"],
        ),
        (
            "site: a\ngpu_probe: {command: x, visible: V}\nimages: podman\npools: [{name: a, gpus_per_node: 0}]",
            ["$.gpu_probe", "leave out images"],
        ),
        (
            "site: a\ngpu_probe: {command: x, visible: V}\npools: [{name: a, model: B, gpus_per_node: 2, shared: 1}]",
            ["$.gpu_probe", "pool a", "leave out 'shared'"],
        ),
        ("site: a\ngpu_test: {command: x, again: 0s}", ["$.gpu_test.again", "0.1s"]),
        ("site: a\ngpu_test: {command: x}\nwatch_gpus: false", ["$.gpu_test", "watch_gpus"]),
        (
            "site: a\ngpu_test: {command: x}\nslurm: {shared_dir: /s}",
            ["$.gpu_test", "a cluster tests its own nodes"],
        ),
        ("site: [", ["site.yaml"]),
    ],
)
def test_errors_name_file_line_field_and_remedy(text: str, words: list[str]) -> None:
    with pytest.raises(Invalid) as caught:
        parse(text)
    for word in ["site.yaml", *words]:
        assert word in str(caught.value)


def test_a_command_of_the_site_counts_gpus_that_no_driver_tells_of() -> None:
    probe = (
        """gpu_probe: {command: 'echo "{\\"gpus\\": [{\\"name\\": \\"Orin\\", \\"memory_mib\\": 28610}]}"'}"""
    )
    many = parse(f"site: a\n{probe}")
    found = [(pool.name, pool.model, pool.gpus_per_node, pool.gpu_memory_mib) for pool in many.site.pools]
    assert found == [("default", "Orin", 1, 28610)]
    said = parse(
        "site: a\npools: [{name: board, model: Orin, gpus_per_node: 2}]\ngpu_probe: {command: exit 1}"
    )
    assert said.site.pools[0].gpus_per_node == 2


def test_all_that_is_wrong_is_told_at_once(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "site.yaml"
    file.write_text("site: a\nwatch_gpus: sometimes\nreport_every: 5\nimages: vm\n")
    assert main(["check", "--config", str(file)]) == 1
    told = capsys.readouterr().err.splitlines()
    assert [line.split(": ")[1] for line in told] == ["$.watch_gpus", "$.report_every", "$.images"]
    assert [f"line {number}: " in line for number, line in enumerate(told, 2)] == [True] * 3


@pytest.mark.parametrize(
    ("text", "environ", "watched"),
    [
        ("site: a", {}, True),
        ("site: a\nwatch_gpus: false", {}, False),
        ("site: a", {"FEDERATOR_NO_GPU_WATCH": "1"}, False),
    ],
)
def test_gpus_are_watched_unless_the_owner_or_who_made_up_the_machine_says_no(
    text: str, environ: dict[str, str], watched: bool
) -> None:
    assert config.parse(text, "site.yaml", environ).watch_gpus is watched


@pytest.mark.parametrize(
    ("environ", "notices"),
    [
        ({}, None),
        ({"AWS_EC2_METADATA_SERVICE_ENDPOINT": "http://127.0.0.1:1"}, None),
        ({"FEDERATOR_NOTICES": "ec2"}, ("ec2", "http://169.254.169.254")),
        (
            {"FEDERATOR_NOTICES": "ec2", "AWS_EC2_METADATA_SERVICE_ENDPOINT": "http://127.0.0.1:1/"},
            ("ec2", "http://127.0.0.1:1"),
        ),
        ({"FEDERATOR_NOTICES": "azure"}, ("azure", "http://169.254.169.254")),
        (
            {"FEDERATOR_NOTICES": "azure", "AZURE_POD_IDENTITY_AUTHORITY_HOST": "http://127.0.0.1:1/"},
            ("azure", "http://127.0.0.1:1"),
        ),
        ({"FEDERATOR_NOTICES": "gce"}, ("gce", "http://169.254.169.254")),
        ({"FEDERATOR_NOTICES": "gce", "GCE_METADATA_HOST": "127.0.0.1:1"}, ("gce", "http://127.0.0.1:1")),
    ],
)
def test_only_a_machine_that_may_be_taken_back_asks_about_it(
    environ: dict[str, str], notices: tuple[str, str] | None
) -> None:
    assert config.parse("site: a", "site.yaml", environ).notices == notices


def test_only_user_data_may_hold_a_join_token() -> None:
    assert parse("site: a\njoin_token: secret", UserData).join_token == "secret"


def test_jobs_get_where_programs_are_and_no_secrets() -> None:
    environment = parse("site: a").environment
    assert environment["PATH"] == "/bin"
    assert environment["LC_ALL"] == "C"
    assert "AWS_SECRET" not in environment


def test_without_a_site_file_the_user_data_is_read(tmp_path: Path) -> None:
    path = tmp_path / "user-data"
    path.write_text("site: rented\njoin_token: once")
    assert config.load(None, {USER_DATA_VARIABLE: str(path)}).join_token == "once"
    with pytest.raises(Invalid, match="--config"):
        config.load(None, {})


def test_hours_over_midnight_and_in_their_zone() -> None:
    midnight = 1_760_054_400.0  # 2025-10-10T00:00Z
    night = Hours(18 * 60, 8 * 60)
    assert [night.contains(midnight + hour * 3600) for hour in (0, 7, 8, 17, 18)] == [
        True,
        True,
        False,
        False,
        True,
    ]
    zurich = Hours(9 * 60, 10 * 60, "Europe/Zurich")  # two hours ahead in October
    assert [zurich.contains(midnight + hour * 3600) for hour in (6, 7, 8)] == [False, True, False]


def test_several_windows_of_the_week() -> None:
    text = "site: a\nlend: {timezone: Europe/Zurich, hours: [fri-mon 22:00-06:00, wed 9:00-10:00]}"
    lend = parse(text).site.lend
    midnight = 1_760_047_200.0  # 2025-10-10T00:00 in Zurich, a Friday
    open_hours = [hour for hour in range(7 * 24) if lend.open_at(midnight + hour * 3600)]
    nights = [day * 24 + hour for day in range(4) for hour in range(22, 30)]
    assert open_hours == [*nights, 5 * 24 + 9]


def test_what_kind_of_site_it_is_is_not_guessed() -> None:
    """The join token says it: an edge site whose file says nothing is no on-premises one."""
    assert parse("site: basel\n").kind is None


def test_relative_paths_are_of_the_files_own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the agent's working directory is: a unit, a shell and `check` mean the same files."""
    folder = tmp_path / "etc"
    folder.mkdir()
    file = folder / "site.yaml"
    file.write_text(
        "site: here\nca: ca.pem\nstate_dir: state\nhost_key: ../keys/host\nsecrets: {wandb: wandb.env}\n"
        "pools: [{name: cpu, gpus_per_node: 0}]\n"
    )
    monkeypatch.chdir(tmp_path)
    found = config.load(Path("etc/site.yaml"), {})
    assert (found.ca, found.state_dir) == (str(folder / "ca.pem"), folder / "state")
    assert (found.host_key, found.secrets["wandb"].file) == (folder / "../keys/host", folder / "wandb.env")
    file.write_text("site: here\nkube: {image: i, kubeconfig: kc}\n")
    kube = config.load(Path("etc/site.yaml"), {}).kube
    assert kube is not None
    assert kube.kubeconfig == str(folder / "kc")


def test_what_the_energy_of_a_gpu_costs_is_in_the_price_that_plans_weigh() -> None:
    text = 'site: a\nelectricity: {usd_per_kwh: {"06:00": 0.3, "22:00": 0.1}, gpu_watts: 700}'
    by_day, by_night = 12 * 3600.0, 23 * 3600.0
    bare = parse(text).site
    assert bare.price_at(by_day) == pytest.approx(0.21)
    state = State(site=parse(f"{text}\nprice_per_gpu_hour: 0.4").site)
    reports = [site_report(state, Now(at, at)) for at in (by_day, by_night)]
    assert [each.price_usd_gpu_h for each in reports] == pytest.approx([0.61, 0.47])
    untold = parse("site: a\nelectricity: {usd_per_kwh: 0.3}").site
    assert untold.price_at(by_day) is None, "without the power of a GPU the price is as declared"


def test_a_price_of_carbon_is_in_the_price_that_plans_weigh_by_the_intensity_of_the_hour() -> None:
    carbon = 'usd_per_kg_co2: 0.5, gco2_per_kwh: {"06:00": 400, "18:00": 100}'
    site = parse(f"site: a\nelectricity: {{usd_per_kwh: 0.2, gpu_watts: 500, {carbon}}}").site
    by_day, by_night = 12 * 3600.0, 23 * 3600.0
    assert [site.price_at(at) for at in (by_day, by_night)] == pytest.approx([0.1 + 0.1, 0.1 + 0.025])


def test_electricity_has_its_price_by_the_clock_of_its_zone() -> None:
    text = 'site: a\nelectricity: {usd_per_kwh: {"06:30": 0.3, "22:00": 0.1}, gco2_per_kwh: 40, timezone: Asia/Tokyo}'
    told = parse(text).electricity
    midnight_in_tokyo = 1_760_022_000.0 - 1_760_022_000.0 % 86_400 + 15 * 3600
    hours = (0.0, 6.25, 6.5, 21.9, 22.0, 23.9)
    assert [told.at(midnight_in_tokyo + hour * 3600).usd_per_kwh for hour in hours] == [
        0.1,
        0.1,
        0.3,
        0.3,
        0.1,
        0.1,
    ]
    assert told.at(0.0).gco2_per_kwh == 40
    assert parse("site: a").electricity.at(0.0) == (0.0, 0.0)
