"""TensorBoard as people see it: its own server and Chromium, on a run's folder; screenshots stay in `build/`."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest
from matplotlib.image import imread

from rembed_keras.training.sinks import TensorBoard, Watched
from rembed_keras.training.sinks.pieces import Pieces
from tests.analysis.pages.browser import Driver
from tests.training.distributed.test_strategies import free_ports
from tests.training.sinks.test_tensorboard import LEDGER, RECIPE, TABLE, TUNED, pretraining, process, row

SCREENSHOTS = Path(__file__).parents[3] / "build/screenshots"
WITHIN = 240  # seconds that a busy machine may take


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """The address of TensorBoard on the folder of a run."""
    folder = tmp_path_factory.mktemp("shown")
    if shutil.which("chromedriver") is None:
        pytest.skip("chromium's driver is not installed: apt-get install chromium-driver")
    held_out = [row("evaluation", step, loss=9.0 - step / 2, filled_masks=asdict(TABLE)) for step in (0, 6)]
    process(folder / "one", [], [*pretraining((2, 4, 6)), *held_out, *(row(each, 3, loss=0.5) for each in TUNED)])
    sink = TensorBoard()
    sink.open(Watched(folder / "one", RECIPE, LEDGER, list))
    vectors = np.random.default_rng(0).normal(size=(300, 8))
    names = [f"piece{number}" for number in range(300)]
    sink.show_pieces(Pieces(names, ["de", "fr", "ja"] * 100, np.arange(300), vectors.astype(np.float32)))
    sink.close()
    (port,) = free_ports(1)
    words = ["--logdir", str(folder / "one/tensorboard"), "--port", str(port), "--load_fast", "false"]
    board = subprocess.Popen(
        [sys.executable, "-m", "tensorboard.main", *words],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    address = f"http://localhost:{port}"
    try:
        _wait_for_runs(address, board)
        yield address
    finally:
        os.killpg(board.pid, signal.SIGKILL)
        board.wait()


def _wait_for_runs(address, board):
    end = time.monotonic() + WITHIN
    while time.monotonic() < end:
        assert board.poll() is None
        try:
            with urllib.request.urlopen(f"{address}/data/plugin/scalars/tags") as answer:
                if TUNED[-1] in json.load(answer):
                    return
        except (urllib.error.URLError, ConnectionError):
            pass
        time.sleep(0.1)
    raise AssertionError("TensorBoard does not answer")


TABS = {
    "timeseries": ("?tagFilter=pretrain%2Floss#timeseries", ("pretrain/loss", "pretrain/loss/de", "evaluation")),
    "custom_scalars": ("#custom_scalars", ("loss by language", "Pre-training")),
    "text": (
        "#text&tagFilter=ledger%7Crecipe%7Cfilled",
        ("recipe", "STEPS", "ledger", "input embedding", "pretrain/filled_masks", "a | b"),
    ),
    "projector": ("#projector", ("Points:300", "Dimension:8", "piecelanguagecount")),
    "hparams": ("#hparams", ("STEPS", "final/topics/accuracy/pretrained")),
}

CURVES = {
    "timeseries": (slice(650, 850), slice(780, 1100)),
    "custom_scalars": (slice(160, 350), slice(380, 1100)),
    "projector": (slice(300, 700), slice(400, 1000)),
}


@pytest.fixture(scope="module")
def browser(server, tmp_path_factory):
    made = Driver(tmp_path_factory.mktemp("profile"), *free_ports(1))
    yield made
    made.close()


@pytest.mark.slow
@pytest.mark.parametrize("tab", TABS)
def test_chromium_shows_the_tags(server, browser, tab):
    place, expected = TABS[tab]
    browser.open(f"{server}/{place}")
    browser.wait_for(expected)
    SCREENSHOTS.mkdir(parents=True, exist_ok=True)
    image = SCREENSHOTS / f"tensorboard_{tab}.png"
    image.write_bytes(browser.screenshot(2 if tab == "projector" else 60))  # whose points go round
    pixels = imread(image)[..., :3]
    assert len(np.unique(np.rint(pixels * 255).astype(int) @ [65536, 256, 1])) > 50  # colors
    if tab in CURVES:
        rows, columns = CURVES[tab]
        plot = pixels[rows, columns]
        assert ((plot.max(axis=-1) - plot.min(axis=-1)) > 0.3).sum() > 200  # of lines or points, where all else is grey
