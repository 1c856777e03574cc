"""The terminal in a job's page: what a screen makes of a program's output, run where it runs, and editors and pagers of a real job."""

import json
import random
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from playwright.sync_api import Page, WebSocketRoute, expect

from tests.console.stage import Person, Stage

ESC = "\x1b"
SHOW = """async ([columns, rows, parts]) => {
  const { Screen } = await import("/console/screen.js");
  const told = [];
  const screen = new Screen(columns, rows, (text) => told.push(text));
  const from = performance.now();
  let heard = 0;
  for (const part of parts) {
    screen.write(part);
    heard = Math.max(heard, screen.heard.length);
  }
  const took = performance.now() - from;
  const styles = screen.rows.slice(0, 4).map((row) => row.styles.map(({ fg, bg, flags }) => [fg, bg, flags]));
  return {
    rows: screen.rows.map((row) => row.text),
    history: screen.history.map((row) => row.text),
    cursor: [screen.x, screen.y],
    widest: Math.max(...screen.rows.map((row) => row.cells.length)),
    modes: screen.modes, alternate: screen.alternate, columns: screen.columns, height: screen.height, styles, told, took, heard,
  };
}"""


@pytest.fixture(scope="module")
def modules(stage: Stage, browser: Any) -> Iterator[Page]:
    """A page that can load the console's modules."""
    context = browser.new_context()
    page = context.new_page()
    page.goto(stage.url)
    yield page
    context.close()


def shown(page: Page, *parts: str, columns: int = 20, rows: int = 4) -> dict[str, Any]:
    """The screen after this output, which comes in these parts."""
    found: dict[str, Any] = page.evaluate(SHOW, [columns, rows, list(parts)])
    del found["took"], found["heard"]
    return found


@pytest.mark.parametrize(
    ("output", "rows", "cursor"),
    [
        ("one\r\ntwo", ["one", "two", "", ""], [3, 1]),
        ("abc\b\bX\rY", ["YXc", "", "", ""], [1, 0]),
        ("a\tb", ["a       b", "", "", ""], [9, 0]),
        (f"a{ESC}[3g\tb", ["a                  b", "", "", ""], [19, 0]),
        (f"{ESC}[5G{ESC}H\r\tx{ESC}[Z{ESC}[Zy", ["y   x", "", "", ""], [1, 0]),
        ("x" * 21, ["x" * 20, "x", "", ""], [1, 1]),
        ("x" * 20, ["x" * 20, "", "", ""], [19, 0]),
        (f"{ESC}[?7l{'x' * 20}yz", ["x" * 19 + "z", "", "", ""], [19, 0]),
        (f"{ESC}[3;5Hhere{ESC}[Aup{ESC}[1;1H{ESC}[2Bd", ["", "        up", "d   here", ""], [1, 2]),
        (f"{ESC}[999;999Hx{ESC}[99A{ESC}[99Dy", ["y", "", "", " " * 19 + "x"], [1, 0]),
        (f"abcdef{ESC}[3G{ESC}[K", ["ab", "", "", ""], [2, 0]),
        (f"abcdef{ESC}[3G{ESC}[1K", ["   def", "", "", ""], [2, 0]),
        (f"abcdef{ESC}[3G{ESC}[2P{ESC}[1@", ["ab ef", "", "", ""], [2, 0]),
        (f"abcdef{ESC}[3G{ESC}[2X", ["ab  ef", "", "", ""], [2, 0]),
        (f"abc\r{ESC}[4hxy{ESC}[4l", ["xyabc", "", "", ""], [2, 0]),
        (f"1\r\n2\r\n3\r\n4{ESC}[2;1H{ESC}[L", ["1", "", "2", "3"], [0, 1]),
        (f"1\r\n2\r\n3\r\n4{ESC}[2;1H{ESC}[M", ["1", "3", "4", ""], [0, 1]),
        (f"1\r\n2\r\n3\r\n4{ESC}[2;3r{ESC}[3;1H\nx", ["1", "3", "x", "4"], [1, 2]),
        (f"1\r\n2\r\n3\r\n4{ESC}[2;3r{ESC}[2;1H{ESC}Mx", ["1", "x", "2", "4"], [1, 1]),
        (f"1\r\n2\r\n3\r\n4{ESC}[2;3r{ESC}[?6h{ESC}[9;1Hx", ["1", "2", "x", "4"], [1, 2]),
        (f"1\r\n2\r\n3\r\n4{ESC}[1T", ["", "1", "2", "3"], [1, 3]),
        (f"a{ESC}7bc{ESC}8X", ["aXc", "", "", ""], [2, 0]),
        (f"ab{ESC}[J{ESC}[2;2Hx{ESC}[1J", ["", "", "", ""], [2, 1]),
        (f"a{ESC}[3b", ["aaaa", "", "", ""], [4, 0]),
        (f"{ESC}(0lqk{ESC}(Bq\x0eq\x0fq", ["┌─┐qqq", "", "", ""], [6, 0]),
        (f"{ESC})0\x0ex\x0fx", ["│x", "", "", ""], [2, 0]),
        (f"a{ESC}]0;a title\x07b{ESC}]2;other{ESC}\\c{ESC}Pq#0{ESC}\\d", ["abcd", "", "", ""], [4, 0]),
        (f"a{ESC}[31\x18b{ESC}[?z{ESC}[ qc", ["abc", "", "", ""], [3, 0]),
        (f"a{ESC}[1\r;1Hb", ["b", "", "", ""], [1, 0]),
        (f"text{ESC}c{ESC}[?25ha", ["a", "", "", ""], [1, 0]),
        ("日本x\u0301y", ["日本x\u0301y", "", "", ""], [6, 0]),
        ("a" * 19 + "日", ["a" * 19, "日", "", ""], [2, 1]),
        ("日本\x1b[2Gx", [" x本", "", "", ""], [2, 0]),
        ("日本\x1b[3Gx", ["日x", "", "", ""], [3, 0]),
        ("a\u202eb\u200dc\x9b31md", ["abc31md", "", "", ""], [7, 0]),
    ],
)  # fmt: skip
def test_what_a_screen_makes_of_output(
    modules: Page, output: str, rows: list[str], cursor: list[int]
) -> None:
    found = shown(modules, output)
    assert (found["rows"], found["cursor"]) == (rows, cursor)
    assert shown(modules, *output) == found, "a sequence may come in parts"


def test_looks(modules: Page) -> None:
    output = f"{ESC}[1;4;31ma{ESC}[0;38;5;196mb{ESC}[48;2;1;2;3mc{ESC}[39;49;38:2::9:8:7md{ESC}[4:3m{ESC}[97;100me{ESC}[4:0m{ESC}[7;22mf{ESC}[38;5;999;1mg{ESC}[mh"
    (first, *_) = shown(modules, output)["styles"]
    true = 0x1000000
    assert first[:5] == [
        [1, -1, 9],
        [196, -1, 0],
        [196, true + 0x010203, 0],
        [true + 0x090807, -1, 0],
        [15, 8, 8],
    ]
    assert first[5:] == [[15, 8, 16], [15, 8, 17], [-1, -1, 0]]
    erased = shown(modules, f"{ESC}[44m{ESC}[2J")["styles"]
    assert erased == [[[-1, 4, 0]] * 20] * 4


def test_text_can_be_read_on_its_ground(modules: Page) -> None:
    """Nothing hides by having the colour of its ground."""
    look = "async ([fg, bg, flags]) => (await import('/console/sgr.js')).painted('x', {fg, bg, flags}).style.cssText"
    assert modules.evaluate(look, [1, -1, 0]) == "color: rgb(226, 86, 74);"
    assert (
        modules.evaluate(look, [-1, -1, 16])
        == "color: rgb(20, 23, 27); background-color: rgb(228, 232, 237);"
    )
    true = 0x1000000
    for colour in (0x808080, 0xFFFFFF, 0x0000FF):
        found = modules.evaluate(look, [true + colour, true + colour, 0])
        letters, ground = (
            tuple(map(int, each.split("(")[1].split(")")[0].split(","))) for each in found.split(";")[:2]
        )
        assert max(abs(one - other) for one, other in zip(letters, ground, strict=True)) > 80


def test_what_scrolls_away_is_kept_and_an_editors_screen_is_not(modules: Page) -> None:
    lines = "".join(f"{number}\r\n" for number in range(6))
    found = shown(modules, lines)
    assert found["history"] == ["0", "1", "2"]
    edited = f"{lines}{ESC}[?1049h{ESC}[H{lines * 3}"
    inside = shown(modules, edited)
    assert inside["alternate"]
    assert inside["rows"] == ["3", "4", "5", ""]
    left = shown(modules, f"{edited}{ESC}[?1049l$")
    assert (left["history"], left["rows"]) == (["0", "1", "2"], ["3", "4", "5", "$"])
    assert shown(modules, f"{lines}{ESC}[3J")["history"] == []


def test_another_size_keeps_what_is_at_the_cursor(modules: Page) -> None:
    made = """async ([rows, editing]) => {
      const { Screen } = await import("/console/screen.js");
      const screen = new Screen(30, 8);
      screen.write("1\\r\\n2\\r\\n3\\r\\n4\\r\\n5\\r\\n" + "x".repeat(28));
      if (editing) screen.write("\\x1b[?1049h\\x1b[2J");
      screen.resize(24, rows);
      if (editing) screen.write("\\x1b[?1049l");
      return [screen.history.length, screen.rows.map((row) => row.text), screen.x, screen.y];
    }"""
    for editing in (False, True):
        found = modules.evaluate(made, [4, editing])
        assert found[:2] == [2, ["3", "4", "5", "x" * 24]]
        assert found[3] == 3
    assert modules.evaluate(made, [12, False])[1:] == [["1", "2", "3", "4", "5", "x" * 24, *[""] * 6], 23, 5]


def test_programs_learn_of_the_terminal_what_they_ask_and_no_more(modules: Page) -> None:
    asked = f"ab{ESC}[6n{ESC}[5n{ESC}[c{ESC}[>c{ESC}[21t{ESC}P$qm{ESC}\\{ESC}]52;c;?\x07"
    assert shown(modules, asked)["told"] == [
        f"{ESC}[1;3R",
        f"{ESC}[0n",
        f"{ESC}[?62;22c",
        f"{ESC}[>0;0;0c",
    ]
    assert len(shown(modules, f"{ESC}[6n" * 10_000)["told"]) == 32


HUGE = "2147483647"
HARMFUL = {
    "sequence without an end": f"{ESC}[" + "1;" * 100_000,
    "title without an end": f"{ESC}]" + "x" * 1_000_000,
    "repeats": f"x{ESC}[99999999999999999999b{ESC}[4294967296b" * 3,
    "moves": "".join(f"{ESC}[{HUGE}{each}" for each in "@PLMSTIZXABCD") * 100,
    "marks": "a" + "\u0301" * 100_000,
    "margins": f"{ESC}[{HUGE};{HUGE}r{ESC}[0;0H" * 1000 + "\n" * 100_000,
    "colours": "".join(f"{ESC}[38;2;{n % 256};{n // 256};7mx" for n in range(65_536)),
}


@pytest.mark.parametrize("what", HARMFUL)
def test_what_is_meant_to_harm_stays_within_the_screen(modules: Page, what: str) -> None:
    output = [HARMFUL[what], f"\x18{ESC}c", "x" * 70_000]
    found = modules.evaluate(SHOW, [100_000, 100_000, output])
    assert (found["columns"], found["height"]) == (400, 200)
    assert found["widest"] <= 400
    assert len(found["history"]) <= 1000
    assert found["heard"] <= 1000, "nor does what nobody has listened to yet grow"
    assert set("".join(found["rows"])) == {"x"}, "it goes on after the next reset"
    assert found["took"] < 2000.0, "milliseconds"


FRAME = 65_536
FILLS = {
    "repeats": f"x{ESC}[99999b",
    "deletes rows": f"{ESC}[99999M",
    "inserts rows": f"{ESC}[99999L",
    "scrolls up": f"{ESC}[99999S",
    "scrolls down": f"{ESC}[99999T",
    "erases": f"{ESC}[2J",
    "letters everywhere": f"{ESC}#8",
    "inserts cells": f"{ESC}[99999@",
    "cuts cells": f"{ESC}[99999P",
    "blanks cells": f"{ESC}[99999X",
    "erases a row": f"{ESC}[2K",
    "the second screen": f"{ESC}[?1049h{ESC}#8{ESC}[?1049l",
}


@pytest.mark.parametrize("what", FILLS)
def test_one_frame_never_holds_the_page_up_for_long(modules: Page, what: str) -> None:
    output = f"{ESC}[41m{ESC}#8{FILLS[what] * (FRAME // len(FILLS[what]))}"
    assert modules.evaluate(SHOW, [200, 60, [output]])["took"] < 2000.0, "milliseconds"


def test_what_a_program_draws_with_repeats_and_colours_is_whole(modules: Page) -> None:
    drawn = f"{ESC}[44m{ESC}[H" + f"={ESC}[198b\r\n" * 59 + f"={ESC}[198b"
    found = modules.evaluate(SHOW, [200, 60, [f"{ESC}[44m{ESC}[2J" + drawn * 20]])
    assert found["rows"] == ["=" * 199] * 60
    assert {style[1] for row in found["styles"] for style in row} == {4}


def test_any_output_in_any_parts_is_one_screen(modules: Page) -> None:
    """Sequences of the kinds that a screen knows and does not, at random."""
    chance = random.Random(7)
    words = ["a", "日", "\u0301", "\r", "\n", "\b", "\t", "word ", "\x0e", "\x0f", f"{ESC}(0", f"{ESC}(B", f"{ESC}M",
             f"{ESC}7", f"{ESC}8", f"{ESC}D", f"{ESC}H", f"{ESC}]0;t\x07", f"{ESC}[?1049h", f"{ESC}[?1049l", f"{ESC}[?6h",
             f"{ESC}[?6l", f"{ESC}[4h", f"{ESC}[4l", f"{ESC}[!p", ESC]  # fmt: skip
    for _ in range(60):
        output = "".join(
            chance.choice(words)
            if chance.random() < 0.5
            else f"{ESC}[{chance.randrange(30)};{chance.randrange(9)}{chance.choice('@ABCDGHIJKLMPSTXZbdgmrsu')}"
            for _ in range(200)
        )
        whole = shown(modules, output)
        assert whole["widest"] <= 20
        assert 0 <= whole["cursor"][0] < 20
        assert 0 <= whole["cursor"][1] < 4
        cuts = sorted(chance.randrange(len(output)) for _ in range(9))
        parts = [output[one:two] for one, two in zip([0, *cuts], [*cuts, len(output)], strict=True)]
        again = shown(modules, *parts)
        assert whole | {"told": []} == again | {"told": []}, json.dumps(output)


@pytest.mark.parametrize(
    ("key", "arrows", "sent"),
    [
        ({"key": "a"}, False, None),
        ({"key": "Enter"}, False, "\r"),
        ({"key": "Backspace"}, False, "\x7f"),
        ({"key": "ArrowUp"}, False, f"{ESC}[A"),
        ({"key": "ArrowUp"}, True, f"{ESC}OA"),
        ({"key": "ArrowLeft", "ctrlKey": True}, True, f"{ESC}[1;5D"),
        ({"key": "F1"}, False, f"{ESC}OP"),
        ({"key": "F12", "shiftKey": True}, False, f"{ESC}[24;2~"),
        ({"key": "PageDown"}, False, f"{ESC}[6~"),
        ({"key": "c", "ctrlKey": True}, False, "\x03"),
        ({"key": "[", "ctrlKey": True}, False, ESC),
        ({"key": " ", "ctrlKey": True}, False, "\0"),
        ({"key": "b", "altKey": True}, False, f"{ESC}b"),
        ({"key": "d", "ctrlKey": True, "altKey": True}, False, f"{ESC}\x04"),
        ({"key": "Tab", "shiftKey": True}, False, f"{ESC}[Z"),
        ({"key": "c", "metaKey": True}, False, None),
        ({"key": "Shift", "shiftKey": True}, False, None),
        ({"key": "Dead"}, False, None),
    ],
)
def test_keys(modules: Page, key: dict[str, Any], arrows: bool, sent: str | None) -> None:
    found = modules.evaluate(
        "async ([key, arrows]) => (await import('/console/keys.js')).sentFor(key, arrows)", [key, arrows]
    )
    assert found == sent


def test_a_paste_cannot_end_itself(modules: Page) -> None:
    paste = "async (given) => (await import('/console/keys.js')).pasted(...given)"
    assert modules.evaluate(paste, ["a\nb\r\n", False]) == "a\rb\r"
    assert modules.evaluate(paste, [f"a{ESC}[201~rm", True]) == f"{ESC}[200~a[201~rm{ESC}[201~"


EDITED = r"""
import curses
def main(screen):
    curses.start_color()
    curses.init_pair(1, curses.COLOR_YELLOW, curses.COLOR_BLUE)
    screen.addstr(0, 0, "rows %d columns %d" % screen.getmaxyx(), curses.color_pair(1))
    screen.addstr(2, 4, "über 日本")
    while True:
        key = screen.getch()
        screen.addstr(4, 0, "key %s " % curses.keyname(key).decode())
        if key == curses.KEY_RESIZE:
            screen.addstr(0, 0, "rows %d columns %d " % screen.getmaxyx())
        if key == ord("q"):
            return
curses.wrapper(main)
"""


@pytest.fixture
def inside(person: Callable[[str], Person], stage: Stage) -> Person:
    """Somebody with a shell open in a job."""
    stage.person("ada")
    with stage.client("ada") as client:
        environment = {"LC_ALL": "C.UTF-8", "EDITED": EDITED}
        made = client.submit({"name": "edited", "run": "sleep 600", "env": environment})
    ada = person("ada")
    page = ada.sign_in()
    ada.open(f"/jobs/{made.jobs[0]}")
    page.get_by_text("A shell inside").click()
    page.get_by_role("button", name="Open a shell").click()
    expect(page.get_by_role("textbox", name="Shell")).to_be_focused()
    page.keyboard.type("PS1='ready> '; clear\n")
    expect(page.locator(".screen-rows")).to_have_text("ready>")
    return ada


def test_a_program_of_curses_with_keys_colours_and_another_size(inside: Person) -> None:
    page = inside.page
    screen = page.locator(".screen-rows")
    page.keyboard.type('python3 -c "$EDITED"\n')
    expect(screen).to_contain_text("über 日本")
    first = screen.locator(".screen-row").first
    rows, columns = (int(each) for each in first.inner_text().split()[1::2])
    assert rows > 20
    assert columns > 80
    expect(first.locator("span").first).to_have_css("background-color", "rgb(58, 111, 208)")
    page.keyboard.press("ArrowUp")
    expect(screen).to_contain_text("key KEY_UP")
    page.keyboard.press("F5")
    expect(screen).to_contain_text("key KEY_F(5)")
    page.keyboard.press("Control+r")
    expect(screen).to_contain_text("key ^R")
    inside.audit()
    inside.picture("terminal")
    page.set_viewport_size({"width": 800, "height": 900})
    expect(first).not_to_contain_text(f"columns {columns}")
    page.set_viewport_size({"width": 1280, "height": 900})
    expect(first).to_contain_text(f"columns {columns}")
    page.keyboard.type("q")
    expect(screen).to_have_text('ready> python3 -c "$EDITED"ready>')


def test_less_and_vi_a_paste_and_what_is_copied(inside: Person) -> None:
    page = inside.page
    screen = page.locator(".screen-rows")
    rows = screen.locator(".screen-row")
    page.keyboard.type("seq 500 | less\n")
    expect(rows.last).to_have_text(":")
    page.keyboard.press("PageDown")
    expect(screen).to_contain_text("32")
    page.keyboard.type("q")
    expect(screen).to_contain_text("seq 500 | lessready>")
    page.keyboard.type("printf ready; cat > pasted; echo done\n")
    expect(screen).to_contain_text("echo doneready")  # before, the paste is the shell's, which brackets it
    page.evaluate(
        """() => {
            const clipboardData = new DataTransfer();
            clipboardData.setData("text/plain", "one <b>\\ntwo\\n");
            document.activeElement.dispatchEvent(new ClipboardEvent("paste", { clipboardData, bubbles: true, cancelable: true }));
        }"""
    )
    expect(screen).to_contain_text("<b>two")
    page.keyboard.press("Control+d")
    expect(screen).to_contain_text("twodoneready>")
    page.keyboard.type("vi pasted\n")
    expect(rows.nth(2)).to_have_text("~")
    page.keyboard.type("GoHe said: three")
    page.keyboard.press("Escape")
    page.keyboard.type(":wq\n")
    expect(screen).to_contain_text("ready> vi pasted")
    page.keyboard.type("clear; cat pasted; printf %200s x\n")
    expect(rows.nth(2)).to_have_text("He said: three")
    expect(screen).to_contain_text("xready>")
    copied = """() => new Promise((resolve) => {
      document.addEventListener("copy", (event) => resolve(event.clipboardData.getData("text/plain")), { once: true });
      document.getSelection().selectAllChildren(document.querySelector(".screen-rows"));
      document.execCommand("copy");
    })"""
    assert page.evaluate(copied).startswith("one <b>\ntwo\nHe said: three\n" + " " * 199 + "xready>")
    page.keyboard.press("Control+Shift+l")
    expect(page.get_by_role("button", name="Leave")).to_be_focused()
    page.get_by_role("textbox", name="Shell").focus()
    page.keyboard.type("exit 3\n")
    expect(page.get_by_text("The shell ended with exit code 3.")).to_be_visible()


def test_a_shell_outlives_its_page_and_the_dispatcher(inside: Person, stage: Stage) -> None:
    page = inside.page
    screen = page.locator(".screen-rows")
    page.keyboard.type("A=kept\n")
    page.get_by_role("button", name="Leave").click()
    expect(page.get_by_text("The shell goes on until the job ends")).to_be_visible()
    page.reload()
    page.get_by_text("A shell inside").click()
    page.get_by_role("button", name="Open a shell").click()
    expect(screen).to_contain_text("A=kept")
    stage.kill()
    expect(page.get_by_text("The connection was lost")).to_be_visible()
    stage.serve()
    expect(page.get_by_text("The connection was lost")).to_have_count(0, timeout=60_000)
    page.get_by_role("textbox", name="Shell").focus()
    page.keyboard.type("echo $A-$((6 * 7))\n")
    expect(screen).to_contain_text("kept-42")
    page.keyboard.type("exit 4\n")
    expect(page.get_by_text("The shell ended with exit code 4.")).to_be_visible()
    page.get_by_role("button", name="Open a shell").click()
    expect(page.get_by_role("textbox", name="Shell")).to_be_focused()
    page.keyboard.type("echo $A-$((6 * 7))\n")
    expect(screen).to_contain_text("-42")
    expect(screen).not_to_contain_text("kept-42")


def test_a_tunnel_that_is_not_made_ends_no_shell(inside: Person) -> None:
    page = inside.page
    broken: list[WebSocketRoute] = []

    def come(route: WebSocketRoute) -> None:
        if broken:
            route.connect_to_server()
            return
        broken.append(route)
        said = {"error": "the agent of north did not dial back within 15 s", "lost": True}

        def refuse(_: object) -> None:
            route.send(b"\3" + json.dumps(said).encode())
            route.close()

        route.on_message(refuse)

    page.keyboard.type("A=kept\n")
    page.get_by_role("button", name="Leave").click()
    page.route_web_socket(re.compile("/tunnel"), come)
    page.get_by_role("button", name="Open a shell").click()
    expect(page.get_by_text("The agent of north did not dial back within 15 s. The page")).to_be_visible()
    expect(page.locator(".screen-rows")).to_contain_text("A=kept")
    with inside.stage.client("ada") as client:
        client.cancel(page.url.rpartition("/")[2])
    expect(page.get_by_text("The shell ended with exit code 137.")).to_be_visible()


def test_a_program_that_asks_is_told_of_the_mouse(inside: Person) -> None:
    page = inside.page
    screen = page.locator(".screen-rows")
    page.keyboard.type("printf '\\033[?1000h\\033[?1006h'; cat -v\n")
    expect(screen).to_contain_text("cat -v")
    box = screen.bounding_box()
    assert box
    page.mouse.click(box["x"] + 2, box["y"] + 2)
    expect(screen).to_contain_text("^[[<0;1;1M^[[<0;1;1m")
    page.mouse.wheel(0, 60)
    expect(screen).to_contain_text("^[[<65;1;1M")
    page.keyboard.down("Shift")
    page.mouse.click(box["x"] + 2, box["y"] + 2)
    page.keyboard.up("Shift")
    page.keyboard.type("x")
    expect(screen).to_have_text(re.compile(r"(\^\[\[<65;1;1M)+x\s*$"))
