"""A study of two arms, for tests of its plan and of its runs, which a script stands in for."""

import json
from pathlib import Path

STUDY = """\
from __gin__ import dynamic_registration
from rembed_keras.analysis import studies
WORKDIR = "study"
SEEDS = (0, 1)
studies.Study.workdir = %WORKDIR
studies.Study.seeds = %SEEDS
studies.Study.arms = [@wide/studies.Arm(), @one/studies.Arm()]
studies.Study.bindings = ["STEPS=30"]
wide/studies.Arm.name = "wide"
wide/studies.Arm.recipe = "recipes/quickstart.gin"
wide/studies.Arm.bindings = ["OUTPUT_EMBEDDING_DIM=512"]
one/studies.Arm.name = "one"
one/studies.Arm.recipe = "recipes/quickstart.gin"
one/studies.Arm.bindings = ["COUPLING=coupled", "OUTPUT_EMBEDDING_DIM=64"]
studies.Study.measures = [@loss/studies.Logged(), @topics/studies.Score()]
loss/studies.Logged.name = "loss"
topics/studies.Score.name = "topics"
topics/studies.Score.task = "topics"
studies.Study.hypotheses = [@h/studies.Hypothesis()]
h/studies.Hypothesis.name = "wide is better"
h/studies.Hypothesis.arm = "wide"
h/studies.Hypothesis.against = "one"
h/studies.Hypothesis.measure = "topics"
h/studies.Hypothesis.expected = "higher"
h/studies.Hypothesis.smallest_effect = 0.01
"""
RUN = """\
import json, os, pathlib, signal, sys, time
bound = dict(word.split("=", 1) for word in sys.argv[2:] if "=" in word)
folder, seed = pathlib.Path(bound["WORKDIR"]), int(bound["SEED"])
folder.mkdir(parents=True, exist_ok=True)
with open("started.txt", "a") as file:
    file.write(folder.name + "\\n")
if sys.argv[1] == "budget":
    (folder / "corpus").mkdir()
    (folder / "corpus/manifest.json").write_text("{}")
    sys.exit()
assert (folder / "corpus/manifest.json").exists()
if "OTHER" in os.environ:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit((folder / "saved").write_text("x") and 75))
    (folder / "ready").touch()
    time.sleep(60)
if folder.name == os.environ.get("FAILS"):
    print("a line")
    sys.exit("rembed: it failed")
value = 0.5 + 0.1 * folder.name.startswith("wide") + 0.01 * seed * (folder.name != "one-seed1")
about = {"task": "topics", "metric": "accuracy", "system": "pretrained", "seed": seed, "n": 60}
scores = [about | {"language": language, "value": value + gain} for language, gain in (("de", 0), ("fr", 0.1))]
scores.append(scores[0] | {"system": "untrained", "value": 0.0})
(folder / "scores.json").write_text(json.dumps(scores))
rows = [{"run": "pretrain", "stage": "pretrain", "step": step, "loss": 5.0 - step / 10} for step in range(1, 4)]
(folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\\n" for row in rows))
for name, text in (("environment", '{"cpus": 2}'), ("finished", '{"seconds_of_last_process": 1.0}')):
    (folder / "writing").write_text(text)
    (folder / "writing").rename(folder / f"{name}.json")  # whole, as a run writes it: the study reads it at any time
"""


def started():
    """The names of what was started, and forgets them."""
    names = sorted(Path("started.txt").read_text().split()) if Path("started.txt").exists() else []
    Path("started.txt").unlink(missing_ok=True)
    return names


def record(folder="study"):
    return json.loads(Path(folder, "study.json").read_text())
