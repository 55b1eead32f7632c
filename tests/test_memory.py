"""Peak memory of loading, reading, preparing and training, measured in processes of their own.

Those of a backend are forks of one, which has imported what they import and computes nothing. What they free of models
goes back to the system at once: what is measured is what they hold, not what an allocator keeps, such as oneDNN's.
"""

import gc
import json
import os
import resource
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from tests.interruptions.forks import finish, import_once, start

ROOT = Path(__file__).parent.parent
pytestmark = pytest.mark.slow

# RemBERT's input width and three quarters of its others, with fewer words and layers: the output table is 36 % of all,
# of twice the words 50 %; in the published model 42 %
WORDS, LAYERS, WIDE, HIDDEN, INPUT, OUTPUT = 15_018, 3, 3456, 864, 256, 1248
CONFIG = {"model_type": "rembert", "vocab_size": WORDS, "num_hidden_layers": LAYERS, "num_attention_heads": 18}
CONFIG |= {"hidden_size": HIDDEN, "intermediate_size": WIDE, "input_embedding_size": INPUT, "type_vocab_size": 2}
CONFIG |= {"output_embedding_size": OUTPUT, "max_position_embeddings": 512, "tie_word_embeddings": False}
ALLOCATORS = {"TF_CPU_ALLOCATOR_USE_BFC": "false", "TF_ENABLE_ONEDNN_OPTS": "0"}  # not those that keep what is freed


def memory(field):
    return 1024 * int(Path("/proc/self/status").read_text().split(field + ":")[1].split()[0])


def peak(work):
    """How much more memory this process had at most while it worked, and what came of the work."""
    gc.collect()
    before = memory("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # resets the peak
    kept = work()
    return memory("VmHWM") - before, kept


def allow(more):  # a limit on writable memory: the present amount and this
    resource.setrlimit(resource.RLIMIT_DATA, [memory("VmData") + more] * 2)


def run(backend, folder, *jobs):
    """What jobs return, each a function of this module and its arguments after the folder; None: without a backend."""
    own = {"PYTHONPATH": str(ROOT), "CUDA_VISIBLE_DEVICES": ""} | ALLOCATORS
    own |= {"KERAS_BACKEND": backend, "MALLOC_MMAP_THRESHOLD_": "1000000"} if backend else {}
    words = [sys.executable, "-X", "faulthandler", "-m", __spec__.name, str(folder), json.dumps([bool(backend), jobs])]
    done = subprocess.run(words, env=os.environ | own, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def main(folder, computes, jobs):
    if computes:
        import_once()
    found = []
    for name, *arguments in jobs:
        output = folder / f"{len(found)}.txt"
        job = globals()[name]
        code = finish(start(lambda job=job, given=arguments: print(json.dumps(job(folder, *given))), output))
        assert code == 0, f"{name}: {code}\n{output.read_text()}"
        found.append(json.loads(output.read_text().splitlines()[-1]))
    print(json.dumps(found))


def write_rembert(folder, words=WORDS, hidden=HIDDEN, wide=WIDE, output=OUTPUT):
    """A Hugging Face folder with a RemBERT of zeros; the names of its tensors are written out here."""
    shapes = {
        "rembert.embeddings.word_embeddings.weight": (words, INPUT),
        "rembert.embeddings.position_embeddings.weight": (512, INPUT),
        "rembert.embeddings.token_type_embeddings.weight": (2, INPUT),
        "rembert.encoder.embedding_hidden_mapping_in.weight": (hidden, INPUT),
        "rembert.encoder.embedding_hidden_mapping_in.bias": (hidden,),
        "rembert.pooler.dense.weight": (hidden, hidden),
        "rembert.pooler.dense.bias": (hidden,),
        "cls.predictions.dense.weight": (output, hidden),
        "cls.predictions.dense.bias": (output,),
        "cls.predictions.decoder.weight": (words, output),
        "cls.predictions.decoder.bias": (words,),
    }
    norms = {"rembert.embeddings.LayerNorm": INPUT, "cls.predictions.LayerNorm": output}
    for i in range(LAYERS):
        block = f"rembert.encoder.layer.{i}"
        pairs = {f"attention.self.{part}": (hidden, hidden) for part in ("query", "key", "value")}
        pairs |= {"attention.output.dense": (hidden, hidden), "intermediate.dense": (wide, hidden)}
        for name, shape in (pairs | {"output.dense": (hidden, wide)}).items():
            shapes |= {f"{block}.{name}.weight": shape, f"{block}.{name}.bias": shape[:1]}
        norms |= {f"{block}.attention.output.LayerNorm": hidden, f"{block}.output.LayerNorm": hidden}
    for name, width in norms.items():
        shapes |= {f"{name}.weight": (width,), f"{name}.bias": (width,)}
    folder.mkdir()
    config = CONFIG | {"vocab_size": words, "hidden_size": hidden, "intermediate_size": wide}
    (folder / "config.json").write_text(json.dumps(config | {"output_embedding_size": output}))
    save_file({name: np.zeros(shape, np.float32) for name, shape in shapes.items()}, folder / "model.safetensors")
    return (folder / "model.safetensors").stat().st_size


def read(folder):
    from rembed_keras.interop.huggingface.read import read_huggingface

    read_huggingface(folder / "small")
    highest, (model, _) = peak(lambda: read_huggingface(folder / "large"))
    import keras

    from rembed_keras.training.loop import checkpoints, restoring

    parts = {name: checkpoints.read_arrays(owned) for name, owned in restoring.parts_of(model).items()}
    checkpoints.save(folder / "checkpoints", 1, parts, {"model": keras.saving.serialize_keras_object(model)})
    return highest


def restore(folder):
    from rembed_keras.interop.huggingface.read import read_huggingface
    from rembed_keras.training.loop import checkpoints, restoring

    read_huggingface(folder / "small")
    found = checkpoints.latest(folder / "checkpoints")
    highest, _ = peak(lambda: restoring.restore(found))
    shutil.rmtree(folder / "checkpoints")
    return highest


def convert(folder, kind):
    from rembed_keras import interop

    interop.convert(str(folder / "small"), str(folder / "little"), "huggingface", kind)
    highest, _ = peak(lambda: interop.convert(str(folder / "large"), str(folder / "much"), "huggingface", kind))
    for made in ("little", "much"):
        shutil.rmtree(folder / made)
    return highest


def reallocate(folder):
    from rembed_keras import interop

    def shrink(name):
        model, _ = interop.read_model(str(folder / name))
        interop.reallocate(model, str(folder / (name + "-narrow")), interop.Plan(16))

    shrink("small")
    return peak(lambda: shrink("large"))[0]


SIZES = {"tensorflow": (WORDS, 207), "jax": (2 * WORDS, 297)}  # words and megabytes: JAX's compiler is 50 MB


@pytest.fixture(scope="module", params=["tensorflow", "jax"])
def peaks(request, tmp_path_factory):
    """By job, the most memory that it took; and the size of the large model."""
    backend, folder = request.param, tmp_path_factory.mktemp("models")
    write_rembert(folder / "small", words=100, hidden=36, wide=36, output=64)
    words, megabytes = SIZES[backend]
    size = write_rembert(folder / "large", words)
    assert round(size / 1e6) == megabytes
    jobs = [["read"], ["restore"], ["convert", "preset"], ["convert", "huggingface"]]
    jobs += [["reallocate"]] * (backend == "tensorflow")
    yield dict(zip(map(" ".join, jobs), run(backend, folder, *jobs), strict=True)), size
    shutil.rmtree(folder)


def test_a_model_of_rembert_s_shape_loads_in_a_fifth_more_than_its_size(peaks):
    highest, size = peaks
    shares = {name: highest[name] / size for name in ("read", "restore")}
    assert all(share < 1.2 for share in shares.values()), shares


def test_a_model_is_converted_in_a_fifth_more_than_its_size(peaks):
    highest, size = peaks
    shares = {kind: highest[f"convert {kind}"] / size for kind in ("preset", "huggingface")}
    assert all(share < 1.2 for share in shares.values()), shares


@pytest.mark.parametrize("peaks", ["tensorflow"], indirect=True)
def test_a_model_is_reallocated_in_its_size_and_that_of_its_output_table(peaks):
    """The model that is read stays as it is, and what is made has a copy of its head; blocks are the same."""
    highest, size = peaks
    share = highest["reallocate"] / (size + 4 * WORDS * OUTPUT)
    assert share < 1.15, share


def pass_over(folder, blocks):
    from array_record.python.array_record_module import ArrayRecordWriter

    from rembed_keras.data import Mixture, corpus
    from rembed_keras.data.text import sha256

    corpus.CACHED_BLOCKS = 500  # 4 MB
    writer = ArrayRecordWriter(str(folder / "en.array_record"), "group_size:1,zstd:1")
    rng = np.random.default_rng(0)
    for _ in range(blocks):
        writer.write(rng.integers(6, 900, corpus.BLOCK).astype("<u2").tobytes())
    writer.close()
    np.save(folder / "counts.npy", np.ones((1, 900), np.int64))
    files = {name: sha256(folder / name) for name in ("en.array_record", "counts.npy", "tokenizer.model")}
    languages = {"en": {"file": "en.array_record", "paragraphs": 1, "tokens": blocks * corpus.BLOCK}}
    manifest = {"format": 1, "dtype": "<u2", "block": corpus.BLOCK, "languages": languages, "files": files}
    (folder / "manifest.json").write_text(json.dumps(manifest))
    mixture = Mixture(corpus.Corpus(folder), batch_size=16, sequence_length=4096)
    mixture[0]
    size = (folder / "en.array_record").stat().st_size
    allow(size // 10)
    highest, steps = peak(lambda: sum(int(mixture[step][0]["token_ids"].any()) for step in range(1, blocks // 16)))
    return highest, size, steps


def test_a_corpus_is_read_within_a_tenth_of_its_size(corpus, tmp_path):
    """A whole pass, by a process with limited memory."""
    (tmp_path / "tokenizer.model").write_bytes(corpus.tokenizer.path.read_bytes())
    blocks = int(os.environ.get("MEMORY_BLOCKS", "10000"))
    ((highest, size, steps),) = run(None, tmp_path, ["pass_over", blocks])
    assert steps == blocks // 16 - 1
    assert highest < 0.1 * size, f"{highest / 1e6:.0f} MB more for a corpus of {size / 1e6:.0f} MB"


def prepare_text(folder, tokenizer):
    from rembed_keras.data.prepare.corpora import prepare

    def make(name):
        prepare(folder / name, folder / f"{name}.made", tokenizer=tokenizer, shard_megabytes=0.1, processes=1)

    make("little")
    size = sum(path.stat().st_size for path in (folder / "much").iterdir())
    allow(max(size // 10, 32_000_000))  # threads reserve 8 MB each and do not use them
    highest, _ = peak(lambda: make("much"))
    return highest, size


def test_text_is_prepared_within_a_tenth_of_its_size(corpus, text_dir, tmp_path):
    """With at least the memory that threads reserve; `MEMORY_TEXT=1000` prepares a gigabyte instead of megabytes."""
    whole = {path.name: path.read_bytes() for path in text_dir.iterdir()}
    times = 1 + int(os.environ.get("MEMORY_TEXT", "30")) * 10**6 // sum(map(len, whole.values()))
    for name, count in (("little", 2), ("much", times)):
        (tmp_path / name).mkdir()
        for file, content in whole.items():
            with open(tmp_path / name / file, "wb") as repeated:
                for _ in range(count):
                    repeated.write(content)
    ((highest, size),) = run(None, tmp_path, ["prepare_text", str(corpus.tokenizer.path)])
    assert highest < 0.1 * size, f"{highest / 1e6:.0f} MB more for text of {size / 1e6:.0f} MB"


def take_steps(folder, corpus, steps):
    """The memory after every twentieth of the steps."""
    import keras

    from rembed_keras.data import Corpus, Mixture
    from rembed_keras.modeling import Encoder, MaskedLM
    from rembed_keras.training import AdamW, TrainingOptimizer
    from rembed_keras.training.distributed.strategies import place
    from rembed_keras.training.loop.callbacks import Measures
    from rembed_keras.training.loop.fit import train
    from rembed_keras.training.loop.workdir import Workdir

    mixture = Mixture(Corpus(corpus), batch_size=2, sequence_length=8)
    learner = MaskedLM(Encoder(900, 1, 1, 8, 8, 4, max_sequence_length=8), 4)
    learner.track_groups(mixture.languages)
    learner.compile(optimizer=TrainingOptimizer(AdamW()), jit_compile=False)
    learner.optimizer.build(learner.trainable_variables)
    seen = []

    class Watch(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            if (batch + 1) % (steps // 20) == 0:
                gc.collect()
                seen.append(memory("VmRSS"))

    fit = learner.fit
    learner.fit = lambda *arguments, callbacks, **options: fit(*arguments, callbacks=[*callbacks, Watch()], **options)
    often = {"checkpoint_every": steps // 10, "log_every": steps // 200, "measures": Measures(2)}
    workdir = Workdir(folder / "run")
    given = learner, mixture.batches, place("one_device", 2), workdir, workdir.checkpoints
    train(*given, run="pretrain", steps=steps, until=steps, tokens_per_step=16, **often)
    return seen


def test_many_steps_take_no_more_memory_than_a_few(corpus, tmp_path):
    """A real run with log, curves and checkpoints; measured after every twentieth of its steps.

    Twenty thousand steps take minutes: `MEMORY_STEPS=20000 pytest tests/test_memory.py -k many_steps`.
    """
    steps = int(os.environ.get("MEMORY_STEPS", "1000"))
    (seen,) = run("tensorflow", tmp_path, ["take_steps", str(corpus.path), steps])
    assert len(seen) == 20
    assert np.median(seen[-4:]) - np.median(seen[4:8]) < 8e6, [round(each / 1e6) for each in seen]


if __name__ == "__main__":
    main(Path(sys.argv[1]), *json.loads(sys.argv[2]))
