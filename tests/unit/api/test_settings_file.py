"""What a dispatcher's file may say: numbers that something can be done with."""

from pathlib import Path

import pytest

from federator.config import load_settings
from federator.kernel.errors import Invalid


@pytest.mark.parametrize(
    ("text", "field", "words"),
    [
        ("turn: {certify_every: -1}", "$.turn.certify_every", "at least 0, not -1 (100 if left out)"),
        ("turn: {minimum_gap_s: .nan}", "$.turn.minimum_gap_s", "write a number"),
        ("retention: {jobs_s: 1e999}", "$.retention.jobs_s", "cannot be inf"),
        ("leases: {poll_s: 0}", "$.leases.poll_s", "above 0"),
        ("traces: {endpoint: collector:4318}", "$.traces.endpoint", "write the whole of it"),
        ("traces: {endpoint: 'http://u:p@collector/'}", "$.traces.endpoint", "headers_file"),
        ("traces: {endpoint: 'http://collector/', share: 0}", "$.traces.share", "above 0"),
        ("log_format: xml", "$.log_format", "json"),
        (
            "turn: {stages: [greedy, magic]}",
            "$.turn.stages",
            "there is no stage 'magic' (leave it out; there are greedy,",
        ),
    ],
)
def test_numbers_and_stages_that_mean_nothing_are_refused(
    tmp_path: Path, text: str, field: str, words: str
) -> None:
    file = tmp_path / "dispatcher.yaml"
    file.write_text(f"# ours\n{text}\n")
    with pytest.raises(Invalid) as raised:
        load_settings(file)
    assert raised.value.field == field
    assert f"{file}, line 2: " in raised.value.message
    assert words in raised.value.describe()


def test_all_that_is_wrong_is_told_at_once_each_with_its_line_and_remedy(tmp_path: Path) -> None:
    file = tmp_path / "dispatcher.yaml"
    file.write_text(
        "turn: {stages: [magic]}\n"
        "server: {port: 99999}\n"
        "retention:\n  jobbs: 5\n"
        "providers:\n"
        "  ec2:\n    type: aws\n    site: ec2\n    settings: {region: us-east-1, zones: [], image: ami-1, offers: [], calls_at_once: 0}\n"
        "  trial:\n    type: locale\n    site: trial\n"
        "  here:\n    type: local\n    settings: {state_dir: /x, command: [run], spot: {no_capacity_share: 2}}\n    site: here\n"
    )
    with pytest.raises(ExceptionGroup) as raised:
        load_settings(file)
    told = [str(each) for each in raised.value.exceptions]
    for field, line, remedy in (
        ("$.turn.stages", 1, "there are greedy"),
        ("$.server.port", 2, "write 0 to 65535"),
        ("$.retention.jobbs", 4, "did you mean jobs?"),
        ("$.providers.ec2.settings.zones", 9, "write at least 1"),
        ("$.providers.ec2.settings.offers", 9, "write at least 1"),
        ("$.providers.ec2.settings.calls_at_once", 9, "from 1 to 64"),
        ("$.providers.trial.type", 11, "write aws, azure, gce, kubernetes, local"),
        ("$.providers.here.settings.spot.no_capacity_share", 15, "from 0 to 1"),
    ):
        (one,) = [each for each in told if each.startswith(f"{field}: {file}, line {line}: ")]
        assert remedy in one
    assert len(told) == 8


@pytest.mark.parametrize(
    ("wrong", "field"),
    [
        ("{offer: a, machines: 0}", "[0].machines"),
        ("{offer: a, machines: 1, price_usd_h: -1}", "[0].price_usd_h"),
        ("{offer: a, machines: 1, until: tomorrow}", "[0].until"),
        ("{offer: a, machines: 1}, {offer: a, machines: 2}", "[1].offer"),
        ("{machines: 1}", "[0]"),
        ("{offer: a, machines: 1, committed_usd_h: 5}", "[0]"),
        ("{offers: {a: 1}, committed_usd_h: 5, machines: 1}", "[0]"),
        ("{offers: {a: 6}, committed_usd_h: 5}", "[0].offers.a"),
        ("{offers: {a: 0}, committed_usd_h: 5}", "[0].offers.a"),
        ("{offer: a, machines: 1}, {offers: {b: 1, a: 1}, committed_usd_h: 5}", "[1].offers"),
    ],
)
def test_what_is_reserved_is_checked(tmp_path: Path, wrong: str, field: str) -> None:
    file = tmp_path / "dispatcher.yaml"
    file.write_text(
        f"providers:\n  mine:\n    type: local\n    site: here\n    settings: {{state_dir: /x, command: [run]}}\n    reserved: [{wrong}]\n"
    )
    with pytest.raises(Invalid) as raised:
        load_settings(file)
    assert raised.value.field == f"$.providers.mine.reserved{field}"


def test_what_is_no_yaml_is_told_with_its_line(tmp_path: Path) -> None:
    file = tmp_path / "dispatcher.yaml"
    file.write_text("turn: {}\nturn: {}\n")
    with pytest.raises(Invalid, match=f"{file}, line 2: "):
        load_settings(file)


def test_what_means_never_is_taken(tmp_path: Path) -> None:
    file = tmp_path / "dispatcher.yaml"
    file.write_text("turn: {certify_every: 0}\nretention: {decisions: 0}")
    assert load_settings(file).turn.certify_every == 0


def test_what_is_said_elsewhere_counts_and_is_not_looked_for_in_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "dispatcher.yaml"
    file.write_text("retention: {promised_s: 60}\n")
    monkeypatch.setenv("FEDERATOR_CLOCK", "scaled:60@1760000000")
    assert load_settings(file, port=7).server.port == 7
    monkeypatch.setenv("FEDERATOR_CLOCK", "broken")
    with pytest.raises(Invalid) as raised:
        load_settings(file)
    assert raised.value.field == "$.clock"
    assert "dispatcher.yaml" not in raised.value.message
