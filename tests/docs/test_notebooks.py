"""The notebooks run from top to bottom, at small size, and are what their sources say."""

import gzip
import importlib.util
import json
import os
from pathlib import Path

import matplotlib as mpl
import pytest

from rembed_keras.data import sample
from tests.interop.models import random_model

ROOT = Path(__file__).parents[2]
SOURCES = sorted(path for path in (ROOT / "notebooks").glob("*.py") if path.name != "write.py")
MINILM = os.environ.get("MINILM")  # folder of the real encoder, where somebody has fetched it
SMALL = {
    "five_minutes": {"VOCABULARY_SIZE": 400, "TEXTS": 128, "EPOCHS": 1, "LABELED": 32, "FINETUNE_EPOCHS": 1},
    "where_parameters_go": {"KEPT": 20_000_000, "VOCABULARY_SIZE": 30_000},
    "shrink_your_encoder": {"WIDTHS": (12, 8), "SENTENCES": 8},
}
SAID = {
    "five_minutes": ["parameters are kept", "nats per masked token", "accuracy 0."],
    "where_parameters_go": ["RemBERT", "kept  575.9M  dropped  418.7M", "E_in    64"],
    "shrink_your_encoder": ["in the token table", "mean cosine"],
}
own = pytest.mark.parametrize("source", SOURCES, ids=lambda path: path.stem)


@pytest.fixture(scope="module")
def writer():
    spec = importlib.util.spec_from_file_location("write_notebooks", ROOT / "notebooks" / "write.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def few_topics(tmp_path_factory):
    """The first rows of the bundled task."""
    folder = tmp_path_factory.mktemp("topics")
    for path in sample.topics_folder().glob("*.tsv.gz"):
        rows = gzip.decompress(path.read_bytes()).splitlines(keepends=True)[:33]  # a batch of 32 below the heading
        (folder / path.name).write_bytes(gzip.compress(b"".join(rows)))
    return folder


def code_of(path, parameters):
    """The code of a notebook, with other parameters after those that it has."""
    cells = [cell for cell in json.loads(path.read_text(encoding="utf-8"))["cells"] if cell["cell_type"] == "code"]
    parts = []
    for cell in cells:
        text = "".join(cell["source"])
        tags = cell["metadata"].get("tags", [])
        if "install" not in tags:
            parts.append(text)
        if "parameters" in tags:
            names = [line.split(" = ")[0] for line in text.splitlines()]
            assert set(parameters) <= set(names), "a parameter of the test is none of the notebook"
            parts += [f"{name} = {value!r}" for name, value in parameters.items()]
    return "\n".join(parts)


def small_bert(folder, tokenizer):
    """A BERT as Hugging Face writes it, with random weights."""
    from rembed_keras.interop import write
    from rembed_keras.modeling import MaskedLM

    sizes = {"vocabulary_size": tokenizer.vocabulary_size, "input_embedding_dim": 16, "always_project": False}
    encoder = random_model(sizes | {"max_sequence_length": 64}).encoder
    coupled = MaskedLM(encoder, 16, coupling="coupled")
    write(coupled, str(folder), "huggingface", tokenizer.path)
    return folder


@pytest.mark.slow
@own
@pytest.mark.filterwarnings("ignore")
@pytest.mark.usefixtures("without_graphs")
def test_a_notebook_runs(source, request, tmp_path, few_topics, capsys, monkeypatch):
    parameters = dict(SMALL[source.stem])
    if source.stem == "shrink_your_encoder":
        if MINILM:
            parameters |= {"SOURCE": MINILM, "WIDTHS": (96,)}
        else:
            with capsys.disabled():
                print("\nshrink_your_encoder: a small random BERT stands for all-minilm-l6-v2; MINILM=FOLDER has it")
            parameters["SOURCE"] = str(small_bert(tmp_path / "bert", request.getfixturevalue("corpus").tokenizer))
    mpl.use("agg")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sample, "topics_folder", lambda: few_topics)
    exec(code_of(source.with_suffix(".ipynb"), parameters), {"__name__": "__main__"})
    printed = capsys.readouterr().out
    for said in SAID[source.stem]:
        assert said in printed, printed


@own
def test_a_notebook_is_what_its_source_says(source, writer):
    home = writer.address((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    expected = writer.notebook(source.stem, source.read_text(encoding="utf-8"), home)
    assert source.with_suffix(".ipynb").read_text(encoding="utf-8") == expected, "run make notebooks"


def test_an_address_gives_a_badge_and_something_to_install(writer):
    home = writer.address('title: "x"\nrepository-code: "https://github.com/owner/name"\n')
    assert home == "owner/name" and writer.address('# repository-code: "https://github.com/owner/name"\n') is None
    source = '# %% [markdown]\n# # Title\n#\n# Text.\n\n# %% tags=["install"]\n\n# %%\nx = 1\n'
    first, install, code = json.loads(writer.notebook("one", source, home))["cells"]
    shown = "".join(first["source"])
    assert shown.startswith("# Title\n\nText.\n\n[![Open in Colab]")
    assert "github/owner/name/blob/main/notebooks/one.ipynb)" in shown
    assert install["source"] == ['%pip install --quiet "git+https://github.com/owner/name"'] and code["source"] == [
        "x = 1"
    ]
    assert "colab" not in writer.notebook("one", source, None)
