"""Training goes on with the corpus and the teachers that it has read so far, wherever they are now."""

import contextlib
import json
import shutil
from functools import partial

import pytest

from rembed_keras.adaptation import Lora, RoAd, tune
from rembed_keras.adaptation.teachers import Teacher
from rembed_keras.adaptation.terms import MiniLM
from rembed_keras.data.corpus import Corpus, corpus_of_run, place_of_corpus
from rembed_keras.data.json_files import SEAL
from rembed_keras.data.prepare.corpora import prepare
from rembed_keras.errors import UserError
from rembed_keras.modeling import Classifier, Encoder
from rembed_keras.tasks import ParallelText
from rembed_keras.training import InitialWeights, trace_retrieval
from rembed_keras.training.initial.encoder_start import EncoderStart
from rembed_keras.training.initial.places import arguments_of, find, said_beside
from rembed_keras.training.initial.reading import read_corpus
from rembed_keras.training.loop import checkpoints, restoring
from rembed_keras.training.loop.workdir import Workdir
from tests.training.pretraining import learn, make_encoder, rows

pytestmark = pytest.mark.usefixtures("without_graphs")
REMEDY = "another than .*step-00000002 was trained with: bring that one back, or choose another WORKDIR"


def run(folder, corpus, steps, **settings):
    learn(folder, corpus, steps=steps, log_every=1, checkpoint_every=2, **settings)


def without_record(folder):
    """Leaves out of a checkpoint what it says of what was read, as one of an earlier version does."""
    path = folder / "checkpoints/step-00000002/state.json"
    record = json.loads(path.read_text())
    del record["state"]["read"], record[SEAL]
    path.write_text(json.dumps(record))


@pytest.mark.parametrize("languages", [["de", "en", "ja"], ["de", "en"]])
def test_another_corpus_in_the_place_of_one_is_refused(languages, corpus, text_dir, tmp_path):
    ours, theirs, moved = (tmp_path / name for name in ("ours", "theirs", "moved"))
    shutil.copytree(corpus.path, ours)
    run(tmp_path / "run", Corpus(ours), 2)
    text = tmp_path / "text"
    text.mkdir()
    for name in languages:  # as much of the same, in another order
        lines = (text_dir / f"{name}.txt").read_text(encoding="utf-8").splitlines()
        (text / f"{name}.txt").write_text("\n".join(lines[::-1]) + "\n", encoding="utf-8")
    prepare(text, theirs, tokenizer=corpus.tokenizer.path)
    ours.rename(moved)
    theirs.rename(ours)
    with pytest.raises(UserError, match=f"^the corpus {ours} is {REMEDY}"):
        run(tmp_path / "run", Corpus(ours), 3)
    run(tmp_path / "run", Corpus(moved), 3)
    assert [row["step"] for row in rows(tmp_path / "run", "pretrain")] == [1, 2, 3]


def test_later_stages_find_the_corpus_that_was_read(corpus, text_dir, tmp_path):
    """Whatever corpus the run has of its own."""
    shutil.copytree(corpus.path, tmp_path / "ours")
    folder, ours = tmp_path / "run", Corpus(tmp_path / "ours")
    prepare(text_dir, folder / "corpus", vocabulary_size=890, languages=["de"])
    run(folder, ours, 2)
    start = EncoderStart(folder, make_encoder)
    assert start.tokenizer.sha256 == corpus.tokenizer.sha256 and start.languages == corpus.languages
    assert restoring.model_of_run(folder)[1] == ours.path / "tokenizer.model"
    (tmp_path / "parallel").mkdir()
    for name in ("en", "ja"):
        (tmp_path / f"parallel/{name}.txt").write_text("one\ntwo\n")
    with contextlib.closing(Workdir(folder, sinks=())) as workdir:
        trace_retrieval(workdir, make_encoder, [ParallelText(tmp_path / "parallel")], sequence_length=16)
    assert (folder / "retrieval.json").exists()
    shutil.rmtree(ours.path)
    with pytest.raises(UserError, match=f"^the corpus {ours.path} that {folder} was trained on is gone"):
        assert EncoderStart(folder, make_encoder).tokenizer
    (folder / "corpus").rename(ours.path)
    with pytest.raises(UserError, match=f"^the corpus {ours.path} is another than {folder} was trained on"):
        assert EncoderStart(folder, make_encoder).languages


def test_a_corpus_that_was_moved_together_with_its_run_is_found(corpus, tmp_path):
    shutil.copytree(corpus.path, tmp_path / "old/ours")
    with contextlib.closing(Workdir(tmp_path / "old/run", sinks=())) as workdir:
        read_corpus(workdir, Corpus(tmp_path / "old/ours"), None)
    (tmp_path / "old").rename(tmp_path / "new")
    assert corpus_of_run(tmp_path / "new/run").sha256 == corpus.sha256
    assert place_of_corpus(tmp_path / "new/run").samefile(tmp_path / "new/ours")


def test_another_tokenizer_in_the_place_of_the_runs_own_is_refused(corpus, text_dir, tmp_path):
    run_folder = tmp_path / "run"
    shutil.copytree(corpus.path, run_folder / "corpus")
    run(run_folder, Corpus(run_folder / "corpus"), 1)
    assert EncoderStart(run_folder, make_encoder).tokenizer.sha256 == corpus.tokenizer.sha256
    shutil.rmtree(run_folder / "corpus")
    prepare(text_dir, run_folder / "corpus", vocabulary_size=890)
    for ask in (lambda: EncoderStart(run_folder, make_encoder).tokenizer, lambda: restoring.model_of_run(run_folder)):
        with pytest.raises(
            UserError, match=r"tokenizer.model is another tokenizer than .* was trained with: bring that"
        ):
            ask()


def test_a_start_from_the_best_checkpoint_says_how_far_pretraining_has_come(corpus, tmp_path):
    run(tmp_path / "run", corpus, 1)
    (tmp_path / "run/checkpoints/best.json").write_text('{"step": 1}')
    run(tmp_path / "run", corpus, 2)
    start = EncoderStart(tmp_path / "run", make_encoder, InitialWeights(checkpoint="best"))
    assert start.record["place"] == "checkpoints/step-00000001"
    assert start.settings(("pretrained",))["pretraining"] == {"step": 2, "is_done": True}


def test_a_run_that_reads_its_own_corpus_has_no_note_of_another(corpus, tmp_path):
    run(tmp_path / "run", corpus, 1)
    assert (tmp_path / "run/corpus.json").exists()
    shutil.rmtree(tmp_path / "run/checkpoints")
    shutil.copytree(corpus.path, tmp_path / "run/corpus")
    run(tmp_path / "run", Corpus(tmp_path / "run/corpus"), 1)
    assert not (tmp_path / "run/corpus.json").exists()


def test_the_same_corpus_prepared_again_and_an_old_checkpoint_go_on(corpus, text_dir, tmp_path):
    run(tmp_path / "run", corpus, 2)
    run(tmp_path / "run", prepare(text_dir, tmp_path / "again", vocabulary_size=900, shard_megabytes=0.02), 4)
    shutil.rmtree(tmp_path / "run/checkpoints/step-00000004")
    without_record(tmp_path / "run")
    other = prepare(text_dir, tmp_path / "other", vocabulary_size=890)
    run(tmp_path / "run", other, 3)
    assert checkpoints.latest(tmp_path / "run/checkpoints").state["read"] == [
        ["corpus", other.sha256], ["tokenizer", other.tokenizer.sha256]
    ]  # fmt: skip


def test_another_teacher_in_the_place_of_one_is_refused(corpus, tmp_path):
    for seed in (1, 2):
        run(tmp_path / f"teacher{seed}", corpus, 1, seed=seed)
        (tmp_path / f"teacher{seed}/corpus").symlink_to(corpus.path)
    one, two, place = (tmp_path / name for name in ("teacher1", "teacher2", "teacher"))
    go = partial(run, tmp_path / "run", corpus, encoder=partial(make_encoder, dropout=0.1))

    def terms():
        return [MiniLM(Teacher(str(place)))]

    shutil.copytree(one, place, symlinks=True)
    go(2, terms=terms())
    shutil.rmtree(place)
    two.rename(place)
    with pytest.raises(UserError, match=f"^the teacher {place} is {REMEDY}"):
        go(3, terms=terms())
    shutil.rmtree(place)
    one.rename(place)
    go(3, terms=terms())
    state = checkpoints.latest(tmp_path / "run/checkpoints").state
    assert [kind for kind, _ in state["read"]] == ["corpus", "teacher", "tokenizer"]


def test_a_teacher_that_is_no_run_is_known_by_its_weights(corpus, tmp_path):
    place = str(tmp_path / "preset")
    for steps in (2, 3):
        terms = [MiniLM(Teacher(place))]
        make_encoder().save_to_preset(place)
        if steps == 3:  # with other random weights
            with pytest.raises(UserError, match=f"^the teacher {place} is {REMEDY}"):
                run(tmp_path / "run", corpus, steps, terms=terms)
        else:
            run(tmp_path / "run", corpus, steps, terms=terms)
        shutil.rmtree(place)


@pytest.mark.any_backend
def test_what_a_run_holds_is_said_of_the_newest_checkpoint_that_can_be_read(pretrained, tmp_path):
    """As its weights are of that one, by `checkpoints.latest`."""
    shutil.copytree(pretrained, tmp_path / "run")
    first = tmp_path / "run/checkpoints/step-00000001"
    shutil.copytree(first, first.with_name("step-00000002"))
    (first.with_name("step-00000002") / "state.json").write_text('{"step": 2, "sta')
    arguments, name = arguments_of(tmp_path / "run")
    assert name == f"{tmp_path / 'run'} step 1" and arguments["vocabulary_size"] == 900
    assert find(tmp_path / "run").path == first and "de" in said_beside(tmp_path / "run")["pretraining.json"]
    (first / "state.json").write_text("{")
    with pytest.raises(UserError, match=r"step-00000002.state\.json is not JSON"):
        arguments_of(tmp_path / "run")


@pytest.mark.any_backend
def test_what_is_folded_when_a_fine_tuned_model_is_read_is_left_out_of_its_description(tmp_path):
    first = Classifier(Encoder(50, 1, 1, 8, 8, 4, max_sequence_length=16), 2)
    tune(first, [Lora(2)])
    first.encoder.save_to_preset(str(tmp_path / "preset"))
    second = Classifier(first.encoder, 2)
    tune(second, [RoAd()])
    parts = {name: checkpoints.read_arrays(owned) for name, owned in restoring.parts_of(second).items()}
    path = checkpoints.save(tmp_path / "tuned", 1, parts, {"running": []} | restoring.state_of(second))
    with pytest.raises(UserError, match=r"^block_0/attention/query has 'lora' already"):
        Lora().check(arguments_of(tmp_path / "preset")[0])
    assert "hosted" not in restoring.held_in(path).encoder.get_config()
    Lora().check(arguments_of(path)[0])
