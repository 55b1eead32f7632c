import gzip
import shutil

import keras
import keras_hub
import numpy as np
import pytest

from rembed_keras.data import sample
from rembed_keras.data.tokenizers.sentence_piece import SPACE, Tokenizer
from rembed_keras.errors import UserError
from rembed_keras.interop import convert, extend, trim, write
from rembed_keras.interop.convert import read_preset
from rembed_keras.interop.huggingface.read import read_huggingface
from rembed_keras.interop.spm import read_model, write_model
from rembed_keras.interop.vocabulary import changeable
from rembed_keras.modeling import Encoder, LateMaskedLM, MaskedLM
from rembed_keras.tasks.kinds.encoding import encode
from tests.modeling.forward import forward


def random_model(rows, coupling="decoupled", num_layers=1, **changes):
    keras.utils.set_random_seed(4)
    encoder = Encoder(rows, num_layers, 2, 16, 24, **{"input_embedding_dim": 6, "max_sequence_length": 64} | changes)
    width = encoder.get_config()["input_embedding_dim"]
    is_free = coupling == "decoupled" and width == 6  # other families' heads are as wide as the input
    model = MaskedLM(encoder, 20 if is_free or coupling == "extended" else width, coupling=coupling)
    rng = np.random.default_rng(1)
    for weight in model.weights:
        weight.assign(weight.numpy() + rng.normal(0, 0.3, weight.shape))
    return model


@pytest.fixture(scope="module")
def preset(corpus, tmp_path_factory):
    folder = tmp_path_factory.mktemp("presets") / "preset"
    write(random_model(900), str(folder), "preset", corpus.tokenizer.path)
    return folder


def lines(language, start, stop):
    text = gzip.decompress((sample.text_folder() / f"{language}.txt.gz").read_bytes()).decode()
    return text.splitlines()[start:stop]


@pytest.mark.parametrize("coupling", ["extended", "gdes"])
def test_outputs_on_text_of_kept_pieces_are_the_same_bits(coupling, corpus, text_dir, tmp_path):
    model = random_model(900, coupling)
    write(model, str(tmp_path / "preset"), "preset", corpus.tokenizer.path)
    done = trim(str(tmp_path / "preset"), str(tmp_path / "small"), str(text_dir), ["de", "en"])
    small, _ = read_preset(tmp_path / "small")
    ours, theirs = Tokenizer(tmp_path / "small/tokenizer.model"), corpus.tokenizer
    assert done.pieces == (900, ours.vocabulary_size) and ours.vocabulary_size < 700
    assert small.encoder.get_config()["vocabulary_size"] == ours.vocabulary_size
    texts = lines("de", 0, 8) + lines("en", 0, 8)  # of the text that the vocabulary was trimmed to
    before, after = encode(texts, theirs, 48), encode(texts, ours, 48)
    pieces = [
        [tokenizer._model.id_to_piece(int(i)) for i in ids.ravel()]
        for tokenizer, ids in ((theirs, before["token_ids"]), (ours, after["token_ids"]))
    ]
    assert pieces[0] == pieces[1]
    slots = {"mask_positions": np.tile([[1, 3]], (16, 1)).astype("int32")}
    np.testing.assert_array_equal(
        forward(small.encoder, after)["sequence_output"],
        forward(model.encoder, before)["sequence_output"],
    )
    old = forward(model, before | slots)
    new = forward(small, after | slots)
    kept = [theirs._model.piece_to_id(ours._model.id_to_piece(i)) for i in range(ours.vocabulary_size)]
    np.testing.assert_allclose(new, old[:, :, kept], atol=1e-5)


def test_the_report_is_exact(preset, corpus, text_dir, tmp_path):
    done = trim(str(preset), str(tmp_path / "small"), str(text_dir), ["en"])
    assert done.lost["en"] == 0 and 0.3 < done.lost["ja"] < 1 and 0 < done.lost["de"] < done.lost["ja"]
    ours = Tokenizer(tmp_path / "small/tokenizer.model")
    known = {ours._model.id_to_piece(i) for i in range(ours.vocabulary_size)}
    text = [line for line in (text_dir / "ja.txt").read_text().splitlines() if line]
    pieces = [corpus.tokenizer._model.id_to_piece(i) for ids in corpus.tokenizer.encode_batch(text) for i in ids]
    assert done.lost["ja"] == pytest.approx(sum(piece not in known for piece in pieces) / len(pieces))
    saved = (900 - ours.vocabulary_size) * 6 * 4
    assert done.kept_bytes[0] - done.kept_bytes[1] == saved
    rarer = trim(str(preset), str(tmp_path / "smaller"), str(text_dir), ["en"], min_count=20)
    assert rarer.pieces[1] < done.pieces[1] and 0 < rarer.lost["en"] < 0.5
    assert trim(str(preset), str(tmp_path / "twice"), str(text_dir), ["en", "en"], min_count=20) == rarer


def test_special_pieces_stay_and_are_found(preset, text_dir, tmp_path):
    trim(str(preset), str(tmp_path / "small"), str(text_dir), ["ja"])
    ours = Tokenizer(tmp_path / "small/tokenizer.model")
    assert (ours.pad_id, ours.unk_id, ours.cls_id, ours.sep_id, ours.mask_id) == (0, 1, 2, 3, 4)
    layer = keras_hub.tokenizers.Tokenizer.from_preset(str(tmp_path / "small"))
    assert layer("ファイル") == ours.encode("ファイル")


def test_new_pieces_are_initialized_as_the_mean_of_their_parts_and_used(preset, corpus, tmp_path):
    word = f"{SPACE}Menschenrechte"
    parts = corpus.tokenizer.encode("Menschenrechte")
    assert len(parts) > 1
    assert extend(str(preset), str(tmp_path / "more"), [word, word, "\u20bf", "[CLS]"]) == 2
    ours = Tokenizer(tmp_path / "more/tokenizer.model")
    assert ours.vocabulary_size == 902
    layer = keras_hub.tokenizers.Tokenizer.from_preset(str(tmp_path / "more"))
    assert layer("Menschenrechte") == ours.encode("Menschenrechte")
    assert ours.encode("Menschenrechte") == [900] and 900 in ours.encode("Alle Menschenrechte gelten.")
    assert ours.encode("1 \u20bf")[-1] == 901 and corpus.tokenizer.unk_id in corpus.tokenizer.encode("\u20bf")
    old, new = read_preset(preset)[0], read_preset(tmp_path / "more")[0]
    for model_old, model_new in ((old.encoder.token_embedding, new.encoder.token_embedding),):
        rows, longer = model_old.embeddings.numpy(), model_new.embeddings.numpy()
        np.testing.assert_array_equal(longer[:900], rows)
        np.testing.assert_allclose(longer[900], rows[parts].mean(axis=0), atol=1e-6)
    text = lines("en", 0, 4)
    np.testing.assert_array_equal(
        forward(new.encoder, encode(text, ours, 32))["sequence_output"],
        forward(old.encoder, encode(text, corpus.tokenizer, 32))["sequence_output"],
    )
    with pytest.raises(UserError, match="are already in the vocabulary"):
        extend(str(preset), str(tmp_path / "none"), ["[CLS]"])


@pytest.mark.parametrize("text", ["", "\n\n"])
def test_a_file_without_pieces_is_called_so(text, preset, tmp_path, command):
    (tmp_path / "pieces.txt").write_text(text)
    said = command("extend", preset, "more", "--pieces", "pieces.txt", cwd=tmp_path)
    assert said == (2, "", "rembed: pieces.txt has no pieces: write one a line\n")
    assert not (tmp_path / "more").exists()


def test_mistakes_are_named_and_nothing_is_written(preset, corpus, text_dir, tmp_path):
    with pytest.raises(UserError, match="has no text in 'dee'; did you mean de"):
        trim(str(preset), str(tmp_path / "out"), str(text_dir), ["dee"])
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty/sr-Latn.txt").write_text("\n\u200b\n", encoding="utf-8")
    with pytest.raises(UserError, match=r"sr-Latn\.txt has no text"):
        trim(str(preset), str(tmp_path / "out"), str(tmp_path / "empty"))
    with pytest.raises(UserError, match="the tokenizer has 900 pieces and the model 899 rows"):
        changeable(random_model(899), corpus.tokenizer, "short")
    write(
        random_model(60, input_embedding_dim=16, always_project=False).encoder,
        str(tmp_path / "hf"),
        "huggingface",
        None,
    )
    with pytest.raises(
        UserError, match=r"hf is not a keras-hub preset: it is a Hugging Face folder: convert it --from"
    ):
        trim(str(tmp_path / "hf"), str(tmp_path / "out"), str(text_dir))
    write(random_model(900), str(tmp_path / "bare"), "preset", None)
    with pytest.raises(UserError, match=r"has no tokenizer: convert it again"):
        trim(str(tmp_path / "bare"), str(tmp_path / "out"), str(text_dir))
    write(random_model(900, input_cutoffs=(100,)), str(tmp_path / "bands"), "preset", corpus.tokenizer.path)
    with pytest.raises(UserError, match="has adaptive tables"):
        trim(str(tmp_path / "bands"), str(tmp_path / "out"), str(text_dir))
    assert not (tmp_path / "out").exists() and not list(tmp_path.glob(".*"))


def test_rows_without_a_piece_are_taken_by_new_ones_and_go_when_trimmed(corpus, text_dir, tmp_path):
    padded = random_model(903)
    write(padded, str(tmp_path / "padded"), "preset", corpus.tokenizer.path)
    rows = padded.encoder.token_embedding.embeddings.numpy()
    for count, wanted in ((2, 903), (4, 904)):
        pieces = [f"{SPACE}newest{i}" for i in range(count)]
        assert extend(str(tmp_path / "padded"), str(tmp_path / f"more{count}"), pieces) == count
        more = read_preset(tmp_path / f"more{count}")[0].encoder
        table, parts = more.token_embedding.embeddings.numpy(), corpus.tokenizer.encode("newest0")
        assert table.shape[0] == more.arguments["vocabulary_size"] == wanted
        np.testing.assert_array_equal(table[:900], rows[:900])
        np.testing.assert_allclose(table[900], rows[parts].mean(axis=0), atol=1e-6)
        np.testing.assert_array_equal(table[900 + count :], rows[900 + count :])
    done = trim(str(tmp_path / "padded"), str(tmp_path / "small"), str(text_dir))
    small = read_preset(tmp_path / "small")[0].encoder
    assert done.pieces == (900, small.arguments["vocabulary_size"])
    text = lines("en", 0, 2)
    before, after = (
        encode(text, each, 32) for each in (corpus.tokenizer, Tokenizer(tmp_path / "small/tokenizer.model"))
    )
    np.testing.assert_array_equal(
        forward(small, after)["sequence_output"], forward(padded.encoder, before)["sequence_output"]
    )


def test_text_of_kept_pieces_is_segmented_as_before(tmp_path, corpus):
    """Although the rarest pieces are removed, whose score gives that of unknown characters."""
    proto = read_model(corpus.tokenizer.path)
    kind = type(proto.pieces[0])
    scores = {SPACE: -1, "x": -1, "cdef": -1, "ac": -9, "de": -9, "f": -9, "a": -30, "rare": -40}
    pieces = [*proto.pieces[:5], *(kind(piece=piece, score=score) for piece, score in scores.items())]
    write_model(proto, pieces, tmp_path / "own.model")
    write(random_model(len(pieces)), str(tmp_path / "preset"), "preset", tmp_path / "own.model")
    words = ["x", "ac", "de", "f", "cdef"]
    (tmp_path / "text").mkdir()
    (tmp_path / "text/xx-Test.txt").write_text("\n".join(words))
    trim(str(tmp_path / "preset"), str(tmp_path / "small"), str(tmp_path / "text"), ["xx-Test"])
    before, after = Tokenizer(tmp_path / "own.model"), Tokenizer(tmp_path / "small/tokenizer.model")
    assert before.vocabulary_size > after.vocabulary_size
    cuts = [tokenizer._model.encode("xacdef", return_type=str) for tokenizer in (before, after)]
    assert cuts == [[SPACE, "x", "ac", "de", "f"]] * 2


@pytest.mark.parametrize(
    "edit", [lambda *paths: trim(*paths[:3]), lambda *paths: extend(*paths[:2], [f"{SPACE}newest"])]
)
def test_models_that_cannot_be_edited_are_refused(edit, preset, corpus, text_dir, tmp_path):
    preset = shutil.copytree(preset, tmp_path / "preset")
    paths = str(preset), str(tmp_path / "out"), str(text_dir)
    proto = read_model(preset / "tokenizer.model")
    proto.trainer_spec.model_type = 2
    (preset / "tokenizer.model").write_bytes(proto.SerializeToString())
    with pytest.raises(UserError, match="is not a unigram model"):
        edit(*paths)
    write(LateMaskedLM(random_model(900).encoder, 20), str(tmp_path / "late"), "preset", corpus.tokenizer.path)
    with pytest.raises(
        UserError, match="the heads of rembed_keras>LateMaskedLM are dropped: convert it --from preset --to preset"
    ):
        edit(str(tmp_path / "late"), *paths[1:])
    assert not (tmp_path / "out").exists() and not list(tmp_path.glob(".*"))


def test_a_table_with_non_finite_values_is_refused(corpus, text_dir, tmp_path):
    model = random_model(900)
    table = model.encoder.token_embedding.embeddings
    table.assign(np.where(np.arange(900)[:, None] == 400, np.nan, table.numpy()))
    write(model, str(tmp_path / "preset"), "preset", corpus.tokenizer.path)
    with pytest.raises(UserError, match="embeddings/token/embeddings has non-finite values"):
        extend(str(tmp_path / "preset"), str(tmp_path / "out"), [f"{SPACE}newest"])
    assert not (tmp_path / "out").exists() and not list(tmp_path.glob(".*"))


AS_BERT, AS_ALBERT = {"always_project": False, "input_embedding_dim": 16}, {"layer_sharing": "all", "num_layers": 2}


@pytest.mark.parametrize(
    ("coupling", "graph"),
    [
        ("decoupled", {}),
        ("decoupled", AS_BERT),
        ("coupled", AS_BERT),
        ("gdes", AS_ALBERT),
    ],
)
def test_rows_survive_all_edits_and_formats_together(coupling, graph, corpus, text_dir, tmp_path):
    """Extended, trimmed, written for Hugging Face and read back: every row of every table, and every bias."""
    model = random_model(900, coupling, **graph)
    word, path = f"{SPACE}Menschenrechte", str(tmp_path)
    write(model, f"{path}/preset", "preset", corpus.tokenizer.path)
    extend(f"{path}/preset", f"{path}/more", [word, "unused"])
    trim(f"{path}/more", f"{path}/small", str(text_dir), ["de"])
    convert(f"{path}/small", f"{path}/hf", "preset", "huggingface")
    convert(f"{path}/hf", f"{path}/back", "huggingface", "preset")
    back, tokenizer = read_preset(tmp_path / "back")[0], Tokenizer(tmp_path / "back/tokenizer.model")
    pieces = [tokenizer._model.id_to_piece(i) for i in range(tokenizer.vocabulary_size)]
    assert word in pieces and "unused" not in pieces
    parts = [
        corpus.tokenizer.encode("Menschenrechte") if piece == word else [corpus.tokenizer._model.piece_to_id(piece)]
        for piece in pieces
    ]
    for before, after in zip(tables(model), tables(back), strict=True):
        assert len(after) == len(pieces)
        np.testing.assert_allclose(after, [before[ids].mean(axis=0) for ids in parts], atol=1e-6)


def tables(model):
    """The rows of each piece: input table, output table, and bias."""
    arrays = {weight.path: weight.numpy() for weight in model.weights}
    read = arrays["embeddings/token/embeddings"]
    own = arrays.get("head/output_embedding/decoupled/table/embeddings")
    change = arrays.get("head/output_embedding/gdes/difference/embeddings", 0.0)
    return read, read + change if own is None else own, arrays["head/output_embedding/bias"]


@pytest.mark.parametrize(
    "make", [lambda encoder: LateMaskedLM(encoder, 20), lambda encoder: MaskedLM(encoder, 20, kept_layers=1)]
)
def test_pre_training_heads_are_dropped(make, tmp_path):
    model = make(random_model(50, num_layers=2).encoder)
    write(model, str(tmp_path / "preset"), "preset", None)
    if isinstance(model, LateMaskedLM):
        read, notes = read_preset(tmp_path / "preset")
        assert isinstance(read, Encoder) and notes == ["the heads of rembed_keras>LateMaskedLM are dropped"]
    assert "the pre-training head is dropped" in write(model, str(tmp_path / "hf"), "huggingface", None)[0]
    kept, _ = read_huggingface(tmp_path / "hf")
    assert kept.num_layers == model.drop_heads().num_layers
    inputs = encode_ids([[2, 7, 8, 3]])
    np.testing.assert_allclose(
        forward(kept, inputs)["sequence_output"],
        forward(model.drop_heads(), inputs)["sequence_output"],
        atol=1e-6,
    )


def encode_ids(rows):
    ids = np.array(rows, "int32")
    return {"token_ids": ids, "segment_ids": 0 * ids, "padding_mask": 0 * ids + 1}
