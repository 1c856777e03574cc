"""Which dispatcher is asked and with which token: the order of sources, and that a token goes nowhere it should not."""

from pathlib import Path

import pytest

from federator.client.settings import read_settings
from federator.kernel.errors import Invalid


def local(home: Path, address: str = "http://127.0.0.1:7171") -> dict[str, str]:
    """A dispatcher has been started here."""
    state = home / ".local/share/federator"
    state.mkdir(parents=True)
    (state / "address").write_text(address + "\n")
    (state / "admin.token").write_text("local-secret\n")
    return {"HOME": str(home)}


def configured(home: Path, text: str) -> None:
    folder = home / ".config/federator"
    folder.mkdir(parents=True)
    (folder / "config.yaml").write_text(text)


def test_a_dispatcher_on_this_machine_needs_no_settings(tmp_path: Path) -> None:
    settings = read_settings(environ=local(tmp_path))
    assert (settings.server, settings.token) == ("http://127.0.0.1:7171", "local-secret")


def test_with_nothing_at_all_the_default_is_asked_without_a_token(tmp_path: Path) -> None:
    settings = read_settings(environ={"HOME": str(tmp_path)})
    assert (settings.server, settings.token) == ("http://127.0.0.1:7070", None)


def test_options_go_before_environment_before_file_before_the_local_one(tmp_path: Path) -> None:
    environ = local(tmp_path)
    configured(tmp_path, "server: file:1\ntoken: from-file\n")
    assert read_settings(environ=environ).server == "http://file:1"
    assert read_settings(environ=environ).token == "from-file"
    environ |= {"FEDERATOR_SERVER": "https://env:2/", "FEDERATOR_TOKEN": "from-env"}
    assert (read_settings(environ=environ).server, read_settings(environ=environ).token) == (
        "https://env:2",
        "from-env",
    )
    settings = read_settings("http://option:3", "from-option", environ)
    assert (settings.server, settings.token) == ("http://option:3", "from-option")


def test_the_local_dispatchers_token_is_sent_to_no_other(tmp_path: Path) -> None:
    environ = local(tmp_path)
    assert read_settings("http://elsewhere:7070", environ=environ).token is None
    assert read_settings("127.0.0.1:7171", environ=environ).token == "local-secret"


def test_another_state_directory_can_be_named(tmp_path: Path) -> None:
    local(tmp_path / "other")
    environ = {"HOME": str(tmp_path), "FEDERATOR_STATE_DIR": str(tmp_path / "other/.local/share/federator")}
    assert read_settings(environ=environ).token == "local-secret"


@pytest.mark.parametrize("text", ["sever: x\n", "server: [x]\n", "server: 'x\n"])
def test_a_mistake_in_the_file_names_the_file(text: str, tmp_path: Path) -> None:
    configured(tmp_path, text)
    with pytest.raises(Invalid, match=r"config\.yaml: "):
        read_settings(environ={"HOME": str(tmp_path)})


def test_an_authority_comes_from_option_environment_file_or_the_local_dispatcher(tmp_path: Path) -> None:
    environ = local(tmp_path, "https://127.0.0.1:7171")
    left = tmp_path / ".local/share/federator/ca.pem"
    assert read_settings(environ=environ).ca == ""
    left.touch()
    assert read_settings(environ=environ).ca == str(left)
    assert read_settings("https://elsewhere:7070", environ=environ).ca == ""
    configured(tmp_path, "ca: company.pem\nproxy: none\n")
    assert read_settings(environ=environ).ca == str(tmp_path / ".config/federator/company.pem")
    assert read_settings(environ=environ).proxy == "none"
    environ["FEDERATOR_CA"] = "/from/env.pem"
    assert read_settings(environ=environ).ca == "/from/env.pem"
    assert read_settings(environ=environ, ca="/from/option.pem").ca == "/from/option.pem"
