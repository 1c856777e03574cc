"""A notebook with the command. The Jupyter of these tests is a program of that name which listens where it is told, and knows its token."""

import http.client
import signal
from pathlib import Path

from tests.integration.command.conftest import Federation
from tests.support.waiting import PATIENCE_S

JUPYTER = """#!/usr/bin/env python3
import http.server, os, sys
assert sys.argv[1] == "lab"
port = next(int(word.partition("=")[2]) for word in sys.argv if word.startswith("--port="))
open("made.ipynb", "w").write("kept")
class Lab(http.server.BaseHTTPRequestHandler):
    def do_HEAD(self):
        self.send_response(200); self.end_headers()
    def do_GET(self):
        self.do_HEAD(); self.wfile.write(b"welcome" if self.path.endswith("=" + os.environ["JUPYTER_TOKEN"]) else b"who are you")
http.server.HTTPServer(("127.0.0.1", port), Lab).serve_forever()
"""

# Its kernel is busy the first three times that it is asked, and has done nothing since the epoch after that.
IDLE = """#!/usr/bin/env python3
import http.server, json, os, signal, sys
port = next(int(word.partition("=")[2]) for word in sys.argv if word.startswith("--port="))
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
asked = []
class Lab(http.server.BaseHTTPRequestHandler):
    def do_HEAD(self):
        self.send_response(200); self.end_headers()
    def do_GET(self):
        self.do_HEAD()
        known = self.headers["Authorization"] == "token " + os.environ["JUPYTER_TOKEN"]
        asked.extend(["kernels"] if known and self.path == "/api/kernels" else [])
        state = "busy" if len(asked) <= 3 else "idle"
        kernel = {"execution_state": state, "last_activity": "1970-01-01T00:00:00.000000Z"}
        self.wfile.write(json.dumps([kernel] if self.path == "/api/kernels" else []).encode())
        open("made.ipynb", "w").write(state)
http.server.HTTPServer(("127.0.0.1", port), Lab).serve_forever()
"""


def test_a_notebook_that_nobody_uses_ends(federation: Federation, tmp_path: Path) -> None:
    """It is there for as long as a kernel is busy, and its notebooks are kept."""
    given = tmp_path / "given"
    given.mkdir()
    (given / "jupyter").write_text(IDLE)
    (given / "jupyter").chmod(0o755)
    words = ("--name", "left", "--workdir", str(given), "--env", "PATH=.:/usr/local/bin:/usr/bin:/bin")
    ended = federation.run("notebook", *words, "--idle", "1s")
    assert ended.returncode == 0, ended.stderr
    assert "SUCCEEDED" in ended.stderr
    assert "nothing has run here for 1s: the notebook ends" in federation.run("logs", "left").stdout
    assert federation.run("download", "left", "--into", str(tmp_path / "kept")).returncode == 0
    assert (tmp_path / "kept/made.ipynb").read_text() == "idle"


def test_a_notebook_is_opened_here_and_ends_with_ctrl_c(federation: Federation, tmp_path: Path) -> None:
    given = tmp_path / "given"
    given.mkdir()
    (given / "jupyter").write_text(JUPYTER)
    (given / "jupyter").chmod(0o755)
    words = ("--name", "book", "--workdir", str(given), "--env", "PATH=.:/usr/local/bin:/usr/bin:/bin")
    with federation.start("notebook", *words, "--gpus", "1") as book:
        assert book.stdout is not None
        address = book.stdout.readline().strip()
        assert address, federation.run("logs", "book").stdout
        assert address.startswith("http://localhost:")
        host, _, query = address.removeprefix("http://").partition("/")
        web = http.client.HTTPConnection(host, timeout=PATIENCE_S)
        web.request("GET", f"/{query}")
        assert web.getresponse().read() == b"welcome"
        web.close()
        federation.restart()
        web.request("GET", f"/{query}")
        assert web.getresponse().read() == b"welcome", "the forward has come back with the dispatcher"
        web.close()
        book.send_signal(signal.SIGINT)
        assert book.wait(PATIENCE_S) == 130
    federation.run("wait", "book")
    assert "CANCELLED" in federation.run("show", "book").stdout
    assert federation.run("download", "book", "--into", str(tmp_path / "kept")).returncode == 0
    assert (tmp_path / "kept/made.ipynb").read_text() == "kept"


def test_where_there_is_no_jupyter_it_says_so(federation: Federation) -> None:
    refused = federation.run("notebook", "--env", "PATH=/usr/bin:/bin")
    assert refused.returncode == 6
    assert "there is no jupyter where the job ran (name an image that has it with --image" in refused.stderr
    assert federation.run("notebook", "--nodes", "2").returncode == 2
