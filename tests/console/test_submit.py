"""The page Submit: a form and a job file, of which each fills the other."""

from collections.abc import Callable

from playwright.sync_api import Page, expect

from tests.console.stage import Person

FILE = """# by hand
run: python train.py  # the usual
name: train
env:
  SEED: 7
resources:
  # two of them
  gpus: A100:2
  shm: 1GiB

# when it is due
outputs:
- results/**
"""
EDITS = {
    "a value": (["name"], "other", FILE.replace("name: train", "name: other")),
    "a comment of its own goes": (["run"], "true", FILE.replace("python train.py  # the usual", '"true"')),
    "a new key": (["nodes"], 2, FILE + "nodes: 2\n"),
    "taken out": (["name"], "", FILE.replace("name: train\n", "")),
    "a list": (["outputs"], ["a", "b"], FILE.replace("outputs:\n- results/**", "outputs: [a, b]")),
    "a list taken out": (["outputs"], [], FILE.replace("outputs:\n- results/**\n", "")),
    "within": (["resources", "gpus"], 4, FILE.replace("A100:2", "4")),
    "new within": (
        ["resources", "memory"],
        "4GiB",
        FILE.replace("resources:\n", "resources:\n  memory: 4GiB\n"),
    ),
    "taken out within": (["resources", "gpus"], "", FILE.replace("  gpus: A100:2\n", "")),
    "several lines": (
        ["run"],
        "cd x\nmake",
        FILE.replace("python train.py  # the usual", "|\n  cd x\n  make"),
    ),
    "lines that begin with blanks": (
        ["run"],
        " a\nb",
        FILE.replace("python train.py  # the usual", r'" a\nb"'),
    ),
}


def replaced(page: Page, text: str, path: list[str], value: object) -> object:
    """The text with another value."""
    edit = "async (given) => (await import('/console/yaml.js')).replaced(...given)"
    return page.evaluate(edit, [text, path, value])


def test_one_value_of_a_file_is_written_anew_and_nothing_else(page: Page) -> None:
    for what, (path, value, after) in EDITS.items():
        assert replaced(page, FILE, path, value) == after, what
    assert replaced(page, "", ["resources", "gpus"], 1) == "resources:\n  gpus: 1\n"
    assert replaced(page, "resources:\n  gpus: 1\n", ["resources", "gpus"], "") == ""
    assert replaced(page, "{run: x}\n", ["name"], "y") is None, "it is not written a key a line"
    assert replaced(page, "resources: {gpus: 1}\n", ["resources", "gpus"], 2) is None


def test_form_and_file_are_in_step(person: Callable[[str], Person]) -> None:
    ada = person("ada")
    page = ada.sign_in()
    ada.open("/submit")
    editor, gpus, name = (
        page.get_by_label(each, exact=True) for each in ("Job file, as YAML", "GPUs per node", "Name")
    )
    editor.fill(FILE)
    expect(name).to_have_value("train")
    expect(gpus).to_have_value("A100:2")
    expect(page.get_by_label("Outputs")).to_have_value("results/**")
    expect(page.get_by_text("Only in the file, and kept: env, resources.shm.")).to_be_visible()
    page.set_viewport_size({"width": 390, "height": 900})
    expect(page.get_by_label("Deadline")).to_be_visible()
    page.set_viewport_size({"width": 1280, "height": 900})
    gpus.fill("A100:4")
    assert editor.input_value() == FILE.replace("A100:2", "A100:4")
    name.fill("")
    editor.fill(FILE.replace("  gpus: A100:2", "  gpus: A100:8") + "deadline: 2099-05-01T12:30:00Z\n")
    expect(gpus).to_have_value("A100:8")
    expect(name).to_have_value("train")
    expect(page.get_by_label("Deadline")).to_have_value("2099-05-01T12:30")
    editor.fill("command: [python, train.py]\nresources:\n  gpus: 1\n")
    expect(page.get_by_label("Command")).to_be_disabled()
    editor.fill("{run: sleep 1, resources: {gpus: 1, shm: 1GiB}}")
    expect(gpus).to_have_value("1")
    expect(page.get_by_label("Command")).to_be_enabled()
    gpus.fill("2")
    expect(editor).to_have_value("run: sleep 1\nresources:\n  gpus: 2\n  shm: 1GiB\n")
    editor.press("Control+End")
    editor.press_sequentially("no_such_key: 1\n")
    expect(page.get_by_role("alert").filter(has_text="no_such_key")).to_be_visible()
    name.fill("kept")
    assert editor.input_value().endswith("no_such_key: 1\nname: kept\n")
    editor.fill("")
    expect(gpus).to_have_value("")
    expect(name).to_have_value("")
