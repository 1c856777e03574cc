"""Real processes behind TLS with a private authority, and through a proxy: that all of it goes there, and what is said when it cannot."""

import json
import os
import signal
import ssl
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import trustme

from tests.support.secured import NAME, Proxy, Secured
from tests.support.waiting import wait_until


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    """A dispatcher with TLS, and a site whose agent has joined and serves."""
    with Secured(tmp_path_factory.mktemp("secured")) as place:
        site = place.site()
        place.join(site)
        place.start(site)
        place.until_ready()
        yield place


def shown(place: Secured) -> str:
    return ssl.get_server_certificate(("127.0.0.1", place.port))


@pytest.fixture
def other_certificate(place: Secured) -> Iterator[Secured]:
    """To show another certificate for a while: `show_now` puts it into force."""
    yield place
    place.show("127.0.0.1", NAME)
    show_now(place)


def show_now(place: Secured) -> None:
    certificate = (place.folder / "cert.pem").read_text().strip().splitlines()
    os.kill(place.processes.started["dispatcher"].pid, signal.SIGHUP)
    wait_until(lambda: shown(place).splitlines()[:5] == certificate[:5], "the new certificate to be shown")


def test_work_directory_log_and_outputs_go_over_it(place: Secured, tmp_path: Path) -> None:
    (tmp_path / "greet.sh").write_text("echo over TLS; mkdir out; echo kept >out/it\n")
    (tmp_path / "job.yaml").write_text("name: greet\nworkdir: .\nrun: sh greet.sh\noutputs: [out/**]\n")
    assert place.url.startswith("https://")
    submitted = place.command("submit", str(tmp_path / "job.yaml"))
    assert submitted.returncode == 0, submitted.stdout
    waited = place.command("wait", "greet")
    assert waited.returncode == 0, waited.stdout
    assert "over TLS" in place.command("logs", "-f", "greet").stdout
    done = place.command("download", "greet", "--into", str(tmp_path / "got"))
    assert done.returncode == 0, done.stdout
    assert (tmp_path / "got/out/it").read_text() == "kept\n"


def test_a_command_and_many_jobs_go_over_it(place: Secured, tmp_path: Path) -> None:
    ran = place.command("run", "--", "sh", "-c", "echo streamed; exit 7")
    assert (ran.returncode, "streamed" in ran.stdout) == (7, True), ran.stdout
    many = tmp_path / "many.ndjson"
    many.write_text('{"run": "true"}\n{"run": "true"}\n')
    submitted = place.command("submit", str(many))
    assert submitted.returncode == 0, submitted.stdout


def test_the_command_beside_the_dispatcher_needs_to_be_told_nothing(place: Secured) -> None:
    local = {"FEDERATOR_STATE_DIR": str(place.folder / "state")}
    listed = place.run("federator", "sites", environment=local)
    assert (listed.returncode, "north" in listed.stdout) == (0, True), listed.stdout


def test_a_rented_machine_believes_the_authority_that_its_user_data_carries(place: Secured) -> None:
    document = json.loads(place.site("rented", ca=place.ca.read_text(), member="rented").read_text())
    file = place.folder / "user-data"
    file.write_text(json.dumps(document | {"join_token": place.token()}))
    place.processes.start("rented", "federator_agent", ["serve"], {"FEDERATOR_USER_DATA_FILE": str(file)})
    wait_until(lambda: "rented" in place.ready(), "it to be ready")
    place.processes.kill("rented")


def complaints(place: Secured, ca: str | None) -> list["subprocess.CompletedProcess[str]"]:
    """What each program says that dials the dispatcher, given this authority."""
    place.site("stranger", ca=ca, member="stranger")
    site = place.folder / "stranger.yaml"
    command = place.command("sites", environment={"FEDERATOR_CA": ca or ""})
    return [command, place.agent("check", site), place.agent("join", site, "--token", "join_none")]


def test_an_authority_that_nobody_here_knows_is_named(place: Secured, tmp_path: Path) -> None:
    other = tmp_path / "other.pem"
    trustme.CA().cert_pem.write_to_path(other)
    for said in complaints(place, None):
        assert said.returncode in (1, 2)
        assert "ca: the certificate of https://127.0.0.1" in said.stdout
        assert "is not signed by an authority that this machine knows" in said.stdout
    for said in complaints(place, str(other)):
        assert said.returncode in (1, 2)
        assert f"is not signed by the authority in {other}" in said.stdout
        assert "(give the PEM file" in said.stdout


def test_an_expired_certificate_is_named_and_sessions_outlive_it(other_certificate: Secured) -> None:
    place = other_certificate
    place.show("127.0.0.1", expired=True)
    show_now(place)
    for said in complaints(place, str(place.ca)):
        assert said.returncode in (1, 2)
        assert "has expired (renew server.tls.cert" in said.stdout
    assert "has expired: renew it" in place.said("dispatcher")
    place.show("127.0.0.1", NAME)
    show_now(place)
    wait_until(lambda: "north" in place.ready(), "it to be heard")
    assert place.said("agent-north").count("stands") == 1


def test_a_certificate_of_another_name_is_named(other_certificate: Secured) -> None:
    place = other_certificate
    place.show("elsewhere.test")
    show_now(place)
    for said in complaints(place, str(place.ca)):
        assert said.returncode in (1, 2)
        assert "is not made for 127.0.0.1 (dial a name or address that is in it" in said.stdout


def test_who_speaks_no_tls_is_told_to(place: Secured) -> None:
    plain = place.url.replace("https:", "http:")
    said = place.command("sites", "--server", plain)
    assert said.returncode != 0
    assert "Then write https://" in said.stdout


def test_all_goes_through_the_proxy_that_the_environment_names(place: Secured) -> None:
    url = f"https://{NAME}:{place.port}"
    with Proxy(place.port) as proxy:
        environment = {"HTTPS_PROXY": proxy.url}
        site = place.site("behind", dispatcher=url, member="behind")
        checked = place.agent("check", site, environment=environment)
        assert f"answers through the proxy {proxy.url}" in checked.stdout, checked.stdout
        assert proxy.connects == [f"{NAME}:{place.port}"]
        place.join(site, environment=environment)
        place.start(site, environment)
        wait_until(lambda: "behind" in place.ready(), "it to be ready")
        before = len(proxy.connects)
        gang = ("run", "--nodes", "2", "--gpus", "1", "--", "echo", "both")
        ran = place.command(*gang, environment=environment | {"FEDERATOR_SERVER": url})
        assert ran.returncode == 0, ran.stdout
        assert len(proxy.connects) > before
        past = place.command(
            "sites", environment={"FEDERATOR_SERVER": url, "NO_PROXY": ".test"} | environment
        )
        assert (past.returncode, "cannot reach the dispatcher" in past.stdout) == (4, True), past.stdout


def test_the_command_reaches_it_through_a_proxy_that_is_reached_by_tls(place: Secured) -> None:
    """Small answers and large ones, logs that are followed, uploads: TLS inside of TLS."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    place.authority.issue_cert("127.0.0.1").configure_cert(context)
    url = f"https://{NAME}:{place.port}"
    with Proxy(place.port, "ada:s3cret", certificate=context) as proxy:
        environment = {"HTTPS_PROXY": proxy.url, "FEDERATOR_SERVER": url}
        sites = place.command("sites", environment=environment)
        assert (sites.returncode, "north" in sites.stdout) == (0, True), sites.stdout
        assert proxy.connects == [f"{NAME}:{place.port}"]
        (place.folder / "long.yaml").write_text("run: seq 200000\nname: long\n")
        job = place.command("submit", str(place.folder / "long.yaml"), environment=environment)
        assert job.returncode == 0, job.stdout
        followed = place.command("logs", "-f", "long", environment=environment)
        assert followed.stdout.split() == [str(number) for number in range(1, 200_001)]
        without = proxy.url.replace("ada:s3cret@", "")
        refused = place.command("sites", environment=environment | {"HTTPS_PROXY": without})
        assert (refused.returncode, "407" in refused.stdout) == (4, True), refused.stdout
    assert "s3cret" not in sites.stdout + refused.stdout


def test_a_proxy_with_a_password_is_named_in_the_site_file_and_its_password_nowhere_else(
    place: Secured,
) -> None:
    url = f"https://{NAME}:{place.port}"
    with Proxy(place.port, "ada:s3cret") as proxy:
        named = place.agent("check", place.site("named", dispatcher=url, proxy=proxy.url))
        assert named.returncode == 0, named.stdout
        without = proxy.url.replace("ada:s3cret@", "")
        refused = place.agent("check", place.site("refused", dispatcher=url, proxy=without))
        assert (refused.returncode, "407" in refused.stdout) == (1, True), refused.stdout
        assert proxy.refused == 1
    gone = place.agent("check", place.site("gone", dispatcher=url, proxy=proxy.url))
    assert (gone.returncode, "through the proxy" in gone.stdout) == (1, True), gone.stdout
    assert not any("s3cret" in said.stdout for said in (named, refused, gone))
