"""Chromium without a window: what it shows of a page, and what the page asked for."""

import base64
import html
import json
import re
import shutil
import subprocess
import time
import urllib.error
import urllib.request

import pytest

FRAME = """<!DOCTYPE html><body style="margin:0"><iframe src="{name}" style="border:0;width:{width}px;height:900px">
</iframe><p id="said"></p><script>onload = () => {{
const frame = document.querySelector("iframe"), page = frame.contentDocument, text = page.querySelector("svg text")
document.getElementById("said").textContent = JSON.stringify({{
  width: page.documentElement.scrollWidth, scripts: page.scripts.length, drawings: page.querySelectorAll("svg").length,
  requests: frame.contentWindow.performance.getEntriesByType("resource").map(entry => entry.name),
  broken: [...page.querySelectorAll("td")].filter(cell => /^\\S{{1,12}}$/.test(cell.textContent)).filter(cell => {{
    const range = page.createRange(); range.selectNodeContents(cell); return range.getClientRects().length > 1
  }}).map(cell => cell.textContent),
  letters: text.getBoundingClientRect().height, text: page.body.innerText}})}}</script>"""
QUIET = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync", "--enable-logging=stderr",
)  # fmt: skip


def chromium(folder, *words, timeout=120):
    """Runs Chromium with a profile of its own in a folder; skips the test where it is not installed."""
    browser = shutil.which("chromium")
    if browser is None:
        pytest.skip("chromium is not installed: apt-get install chromium")
    command = [browser, *QUIET, f"--user-data-dir={folder / 'profile'}", *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=timeout, check=True)


TEXTS = """
const texts = node => [...node.childNodes].flatMap(child =>
  child.nodeType === 3 ? [child.data.trim()] : [
    ...(child.shadowRoot ? texts(child.shadowRoot) : []),
    ...(child.contentDocument?.body ? texts(child.contentDocument.body) : []), ...texts(child)])
return texts(document.body).filter(text => text && text.length < 200)"""


class Driver:
    """Chromium on a page of a server, driven by its own driver.

    Args:
        folder: for its profile.
        port: one that nobody uses.
    """

    def __init__(self, folder, port):
        if shutil.which("chromedriver") is None or shutil.which("chromium") is None:
            pytest.skip("chromium and its driver are not installed: apt-get install chromium chromium-driver")
        quiet = subprocess.DEVNULL
        self._process = subprocess.Popen(["chromedriver", f"--port={port}"], stdout=quiet, stderr=quiet)
        self._address, end = f"http://localhost:{port}", time.monotonic() + 60
        arguments = [*QUIET, "--enable-unsafe-swiftshader", "--window-size=1400,1000", f"--user-data-dir={folder}"]
        wanted = {"alwaysMatch": {"goog:chromeOptions": {"args": arguments}}}
        while True:
            try:
                self._session = f"session/{self._ask('session', {'capabilities': wanted})['sessionId']}"
                return
            except urllib.error.URLError:
                if time.monotonic() > end or self._process.poll() is not None:
                    self.close()
                    raise
                time.sleep(0.2)

    def open(self, address):
        """Opens a page, from nothing."""
        self._ask(f"{self._session}/url", {"url": "about:blank"})
        self._ask(f"{self._session}/url", {"url": address})

    def wait_for(self, expected, seconds=240):
        """Waits until texts stand on the page, in those of its components too, which may cut them into parts."""
        end, found = time.monotonic() + seconds, ""
        while not all(each in found for each in expected):
            assert time.monotonic() < end, found
            time.sleep(0.1)
            found = "".join(self._ask(f"{self._session}/execute/sync", {"script": TEXTS, "args": []}))

    def screenshot(self, seconds=60):
        """The page as the bytes of a PNG, when it has been the same for a while: curves are drawn after texts."""
        end, same, image = time.monotonic() + seconds, 0, b""
        while same < 3 and time.monotonic() < end:
            time.sleep(0.5)
            before, image = image, base64.b64decode(self._ask(f"{self._session}/screenshot"))
            same = same + 1 if image == before else 0
        return image

    def close(self):
        """Ends Chromium and its driver."""
        if hasattr(self, "_session"):
            self._ask(self._session, method="DELETE")
        self._process.kill()
        self._process.wait()

    def _ask(self, path, values=None, method=None):
        data = None if values is None else json.dumps(values).encode()
        request = urllib.request.Request(f"{self._address}/{path}", data, method=method)
        with urllib.request.urlopen(request, timeout=240) as answer:
            return json.load(answer)["value"]


def shown(folder, name, width):
    """What a page in a folder is at a width, and what Chromium says of errors."""
    (folder / "frame.html").write_text(FRAME.format(name=name, width=width), encoding="utf-8")
    done = chromium(
        folder, "--allow-file-access-from-files", "--dump-dom", "--window-size=1400,1000", f"file://{folder}/frame.html"
    )
    said = json.loads(html.unescape(re.search(r'<p id="said">(.*?)</p>', done.stdout, re.DOTALL)[1]))
    return said | {"errors": [line for line in done.stderr.splitlines() if "CONSOLE" in line]}
