"""Chromium without a window: what it shows of a page, and what the page asked for."""

import json
import re
import shutil
import subprocess

import pytest

FRAME = """<!DOCTYPE html><body style="margin:0"><iframe src="{name}" style="border:0;width:{width}px;height:900px">
</iframe><p id="said"></p><script>onload = () => {{
const frame = document.querySelector("iframe"), page = frame.contentDocument, text = page.querySelector("svg text")
document.getElementById("said").textContent = JSON.stringify({{
  width: page.documentElement.scrollWidth, scripts: page.scripts.length, drawings: page.querySelectorAll("svg").length,
  requests: frame.contentWindow.performance.getEntriesByType("resource").map(entry => entry.name),
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


def shown(folder, name, width):
    """What a page in a folder is at a width, and what Chromium says of errors."""
    (folder / "frame.html").write_text(FRAME.format(name=name, width=width), encoding="utf-8")
    done = chromium(
        folder, "--allow-file-access-from-files", "--dump-dom", "--window-size=1400,1000", f"file://{folder}/frame.html"
    )
    said = json.loads(re.search(r'<p id="said">(.*?)</p>', done.stdout, re.DOTALL)[1])
    return said | {"errors": [line for line in done.stderr.splitlines() if "CONSOLE" in line]}
