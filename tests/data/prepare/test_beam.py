"""Preparation on Beam's direct runner, in an environment of its own; see rembed_keras/data/prepare/beam.py."""

import hashlib
import importlib.util
import json
import os
import subprocess
from pathlib import Path

import pytest

from rembed_keras.data.prepare.beam import all_but_first
from rembed_keras.data.prepare.cleaning import VERDICTS, Cleaning
from rembed_keras.data.prepare.corpora import prepare
from rembed_keras.errors import UserError

ROOT = Path(__file__).parents[3]
PYTHON = Path(os.environ.get("BEAM_PYTHON", ROOT / ".venv-beam" / "bin" / "python"))
CLEANING = {"unicode_form": "NFC", "deduplicate": True, "near_duplicates": 0.7, "language_threshold": 0.9}
HELD_OUT = 0.2


def has_beam():
    command = [PYTHON, "-c", "import apache_beam, rensa, py3langid"]
    return PYTHON.exists() and subprocess.run(command, capture_output=True, check=False).returncode == 0


def digests(folder):
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(folder.iterdir())}


@pytest.mark.slow
def test_beam_makes_the_same_corpus_without_tensorflow(text_dir, corpus, tmp_path):
    if not has_beam():
        pytest.skip(f"{PYTHON} has no Apache Beam: `make beam` makes such an environment, or name one in BEAM_PYTHON")
    for library in ("rensa", "py3langid"):
        pytest.importorskip(library, reason="needs the extra: pip install 'rembed-keras[clean]'")
    lines = {path.stem: path.read_text(encoding="utf-8").splitlines() for path in sorted(text_dir.iterdir())}
    texts = [
        {"text": line, "lang": language} for language in lines for line in [*lines[language][:90], *lines["de"][80:99]]
    ]
    texts += [text | {"text": f"{text['text']} etc."} for text in texts[:40]] + texts[5:25]
    (tmp_path / "text").mkdir()
    whole = "".join(json.dumps(text) + "\n" for text in texts)
    (tmp_path / "text" / "all.jsonl").write_text(whole, encoding="utf-8")
    local = prepare(
        tmp_path / "text",
        tmp_path / "local",
        tokenizer=corpus.tokenizer.path,
        cleaning=Cleaning(**CLEANING, held_out=HELD_OUT),
        shard_megabytes=0.01,
    )
    counts = [sum(each[verdict] for each in local.verdicts.values()) for verdict in VERDICTS]
    assert all(counts), counts  # every verdict has its case
    flags = ["--unicode-form=NFC", "--deduplicate", "--near-duplicates=0.7", "--language-threshold=0.9"]
    flags += [f"--held-out={HELD_OUT}"]
    command = [PYTHON, "-m", "rembed_keras", "prepare", tmp_path / "text", tmp_path / "beam"]
    command += ["--beam=--runner=DirectRunner"]
    command += ["--tokenizer", corpus.tokenizer.path, "--shard-megabytes", "0.01", *flags]
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"} | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert digests(tmp_path / "beam") == digests(local.path)
    (tmp_path / "text" / "all.jsonl").write_text(whole + "{}\n", encoding="utf-8")
    command[5] = tmp_path / "other"
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 2 and "is not a JSON document" in done.stderr.splitlines()[-1]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["beam", "local", "text"]


def test_the_first_of_the_duplicates_is_kept_in_any_order_of_work():
    assert sorted(all_but_first((None, [(2, 0), (0, 9), (1, 1)]))) == [(1, 1), (2, 0)]
    assert list(all_but_first((None, [(3, 3)]))) == []


def test_a_missing_beam_is_reported(text_dir, tmp_path):
    if importlib.util.find_spec("apache_beam") is not None:
        pytest.skip("Beam is installed here")
    with pytest.raises(UserError, match="Apache Beam is not installed, and needs an environment of its own"):
        prepare(text_dir, tmp_path / "out", beam=[])
