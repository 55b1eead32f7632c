"""The site that `make docs` builds: it asks for nothing from elsewhere, and has every public name and command."""

import html
import json
import re
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from rembed_keras import cli
from tests.analysis.pages.browser import chromium

ROOT = Path(__file__).parents[2]
SITE = ROOT / "build/site"
FETCHED = re.compile(
    r"""<(?:script|img|iframe)[^>]* src="(https?:[^"]*)"|<link[^>]* href="(https?:[^"]*)"[^>]*rel="(?!canonical)"""
)

pytestmark = pytest.mark.skipif(not SITE.is_dir(), reason="the site is not built: make docs")


def test_pages_fetch_nothing_from_elsewhere():
    pages = [*SITE.rglob("*.html")]
    assert len(pages) > 50
    found = {page.name: FETCHED.findall(page.read_text(encoding="utf-8")) for page in pages}
    assert not {name: each for name, each in found.items() if each}


def test_the_reference_has_every_public_name():
    text = "".join(page.read_text(encoding="utf-8") for page in (SITE / "reference").glob("*.html"))
    stubs = [*(ROOT / "rembed_keras").rglob("__init__.pyi")]
    names = [name for stub in stubs for name in re.findall(r" import (\w+) as ", stub.read_text(encoding="utf-8"))]
    assert len(names) > 80
    assert not [name for name in names if not re.search(rf'id="rembed_keras[\w.]*\.{name}"', text)]


def test_the_reference_has_every_command():
    text = (SITE / "reference/commands.html").read_text(encoding="utf-8")
    assert not [name for name in cli.rembed.commands if f'id="rembed-{name}"' not in text]


def test_the_catalogue_has_every_recipe():
    text = (SITE / "catalogue.html").read_text(encoding="utf-8")
    recipes = [path.relative_to(ROOT).as_posix() for path in (ROOT / "recipes").rglob("*.gin")]
    assert len(recipes) > 100 and not [name for name in recipes if f"{name}.txt" not in text]


def test_examples_are_code():
    text = (SITE / "reference/rembed_keras.modeling.html").read_text(encoding="utf-8")
    assert '<span class="gp">&gt;&gt;&gt; </span>' in text and "<blockquote>" not in text


# a page in a frame, since Chromium has no window as narrow as a phone
FRAME = """<!DOCTYPE html><body style="margin:0"><iframe src="/{page}" style="border:0;width:{width}px;height:900px">
</iframe><p id="said"></p><script>onload = () => {{
const page = document.querySelector("iframe").contentDocument
document.getElementById("said").textContent = JSON.stringify({{
  width: page.documentElement.scrollWidth, title: page.querySelector("h1").textContent}})}}</script>"""


class Quiet(SimpleHTTPRequestHandler):
    """Serves files, and pages of them in frames below /frame/WIDTH/, and logs nothing."""

    def do_GET(self):
        """The file, or its frame."""
        if not self.path.startswith("/frame/"):
            super().do_GET()
            return
        _, _, width, page = self.path.split("/", 3)
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        self.wfile.write(FRAME.format(page=page, width=width).encode())

    def log_message(self, *words):
        """As the class's, to nobody."""


@pytest.fixture(scope="module")
def address():
    """Of the site on a server of this machine, which its search needs."""
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=SITE)) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.mark.parametrize("width", [360, 1280])
@pytest.mark.parametrize(
    "page", ["index.html", "concepts.html", "catalogue.html", "reference/rembed_keras.modeling.html"]
)
def test_chromium_shows_pages_whole_on_a_phone_and_on_a_desk(page, width, address, tmp_path):
    done = chromium(tmp_path, "--dump-dom", "--window-size=1400,1000", f"{address}/frame/{width}/{page}")
    said = json.loads(html.unescape(re.search(r'<p id="said">(.*?)</p>', done.stdout, re.DOTALL)[1]))
    assert said["title"] and said["width"] <= width and "CONSOLE" not in done.stderr
