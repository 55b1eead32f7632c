"""Conversion between formats: the original TensorFlow checkpoint, SavedModel, keras-hub presets, tokenizers."""

import sys

import keras
import numpy as np
import pytest
import sentencepiece

from rembed_keras.data.tokenizers.opening import open_tokenizer
from rembed_keras.data.tokenizers.sentence_piece import Tokenizer
from rembed_keras.errors import UserError
from rembed_keras.interop import Plan, convert, reallocate, write
from rembed_keras.interop.convert import read_preset, written_whole
from rembed_keras.interop.huggingface.read import read_huggingface
from rembed_keras.interop.spm import message_class
from rembed_keras.interop.tf_checkpoint import read_tf1
from rembed_keras.modeling import Encoder, MaskedLM
from rembed_keras.modeling.layers.adapters import insert_adapters, insert_keras_lora, merge
from rembed_keras.tasks.kinds.encoding import encode
from tests.interop.original import write_original
from tests.modeling.forward import forward

tf = pytest.importorskip("tensorflow", reason="forms of TensorFlow's")


def random_encoder(**changes):
    sizes = {
        "vocabulary_size": 900,
        "num_layers": 2,
        "num_heads": 2,
        "hidden_dim": 128,
        "intermediate_dim": 24,
        "input_embedding_dim": 6,
        "max_sequence_length": 20,
        "activation": "gelu_tanh",
    }
    keras.utils.set_random_seed(2)
    encoder = Encoder(**(sizes | changes))
    rng = np.random.default_rng(1)
    for weight in encoder.weights:
        weight.assign(weight.numpy() + rng.normal(0, 0.1, weight.shape))
    return encoder


def same(one, other):
    assert one.get_config() == other.get_config()
    for ours, theirs in zip(one.weights, other.weights, strict=True):
        np.testing.assert_array_equal(ours.numpy(), theirs.numpy())


def test_the_original_checkpoint_is_read(tmp_path):
    encoder = random_encoder()
    write_original(encoder, tmp_path / "model.ckpt")
    for place in (tmp_path / "model.ckpt", tmp_path):
        again, notes = read_tf1(place)
        same(again, encoder)
    assert notes == ["GELU is the tanh form of the original code"]


def test_the_tokenizer_beside_a_checkpoint_is_stored(corpus, tmp_path):
    (tmp_path / "in").mkdir()
    write_original(random_encoder(), prefix := tmp_path / "in/model.ckpt")
    for number, place in enumerate((prefix, tmp_path / "in")):
        notes = convert(str(place), str(tmp_path / f"without {number}"), "tf1", "preset")
        assert any("no tokenizer is stored" in note for note in notes)
    corpus.tokenizer.copy_to(tmp_path / "in")
    for number, place in enumerate((prefix, tmp_path / "in")):
        notes = convert(str(place), str(tmp_path / f"with {number}"), "tf1", "preset")
        assert open_tokenizer(tmp_path / f"with {number}").sha256 == corpus.tokenizer.sha256
        assert any("in/tokenizer.model, beside the checkpoint" in note for note in notes) == (place == prefix)
    notes = convert(str(prefix), str(tmp_path / "named"), "tf1", "preset", str(corpus.tokenizer.path))
    assert not any("tokenizer" in note for note in notes)


def test_of_several_checkpoints_that_of_the_last_step_is_read(tmp_path):
    for step in (9000, 10000, 200):
        encoder = random_encoder()
        encoder.token_embedding.embeddings.assign_add(step * np.ones((900, 6)))
        write_original(encoder, tmp_path / f"model.ckpt-{step}")
    rows = read_tf1(tmp_path)[0].token_embedding.embeddings.numpy()
    assert 9990 < rows.mean() < 10010


def test_folded_lora_is_written_like_any_kernel(tmp_path):
    encoder = random_encoder()
    insert_keras_lora(encoder.parts.blocks, 2, None, ("query", "up"))
    for weight in encoder.weights:
        if weight.name.startswith("lora"):
            weight.assign(np.random.default_rng(3).normal(0, 0.3, weight.shape))
    with pytest.raises(UserError, match=r"fold it in with `merge` of rembed_keras.modeling\.layers\.adapters"):
        write(encoder, str(tmp_path / "out"), "huggingface", None)
    merge(encoder)
    plain = random_encoder()
    values = {weight.path: weight.numpy() for weight in encoder.weights}
    for weight in plain.weights:
        weight.assign(values[weight.path])
    write(encoder, str(tmp_path / "out"), "huggingface", None)
    again, _ = read_huggingface(tmp_path / "out")
    same(getattr(again, "encoder", again), plain)


@pytest.mark.filterwarnings("ignore:Layer .* does not have a `quantize`:UserWarning")
def test_adapters_and_quantized_layers_are_refused(tmp_path):
    adapted, quantized = random_encoder(), random_encoder()
    insert_adapters(adapted, adapted.parts.blocks, 2)
    quantized.quantize("int8")
    with pytest.raises(UserError, match="has adapters, which other forms have no place for"):
        write(MaskedLM(adapted, 6), str(tmp_path / "new/out"), "huggingface", None)
    with pytest.raises(UserError, match="is quantized, which other forms have no place for"):
        write(quantized, str(tmp_path / "new/out"), "huggingface", None)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("left_out", "message"),
    [
        ("bert/encoder/layer_1/output/dense/kernel", "has no variable bert/encoder/layer_1/output/dense/kernel"),
        ("bert/embeddings/word_embeddings", "has no variable bert/embeddings/word_embeddings"),
    ],
)
def test_a_missing_variable_is_named(left_out, message, tmp_path):
    write_original(random_encoder(), tmp_path / "in" / "model.ckpt", leave_out={left_out})
    with pytest.raises(UserError, match=message):
        convert(str(tmp_path / "in"), str(tmp_path / "out"), "tf1", "preset")
    assert [path.name for path in tmp_path.iterdir()] == ["in"]


def test_a_missing_checkpoint_is_reported(tmp_path):
    for place in (tmp_path, tmp_path / "none"):
        with pytest.raises(UserError, match=r"(no|not a readable) TensorFlow checkpoint"):
            read_tf1(place)


def test_what_needs_tensorflow_says_what_to_install(tmp_path, monkeypatch):
    encoder = random_encoder()
    monkeypatch.setitem(sys.modules, "tensorflow", None)
    with pytest.raises(UserError, match=r"not installed: pip install tensorflow$"):
        read_tf1(tmp_path)
    monkeypatch.setitem(sys.modules, "tensorflow_text", None)
    missing = "a SavedModel needs KERAS_BACKEND=tensorflow and what is not installed: pip install tensorflow"
    with pytest.raises(UserError, match=f"{missing} tensorflow-text$"):  # before the source is looked at
        convert(str(tmp_path), str(tmp_path / "out"), "preset", "savedmodel")
    with pytest.raises(UserError, match=r"export needs .* not installed: pip install tensorflow$"):
        encoder.export(str(tmp_path / "out"))
    assert not list(tmp_path.iterdir())


def test_a_format_that_is_only_read_is_not_written(tmp_path):
    with pytest.raises(UserError, match="tf1 cannot be written; writable formats are huggingface, preset, savedmodel"):
        write(random_encoder(), str(tmp_path / "out"), "tf1", None)
    assert not list(tmp_path.iterdir())


def test_a_damaged_checkpoint_is_reported(tmp_path):
    write_original(random_encoder(), tmp_path / "model.ckpt")
    data = tmp_path / "model.ckpt.data-00000-of-00001"
    content = data.read_bytes()
    for spoilt, message in ((content[:-999], "truncated"), (bytes([content[0] ^ 1]) + content[1:], "Checksum")):
        data.write_bytes(spoilt)
        with pytest.raises(UserError, match=message):
            read_tf1(tmp_path)


@pytest.mark.skipif(keras.config.backend() != "tensorflow", reason="a SavedModel is made on TensorFlow")
def test_a_saved_model_takes_strings(corpus, tmp_path):
    encoder = random_encoder(vocabulary_size=corpus.tokenizer.vocabulary_size, num_layers=1)
    write(encoder, str(tmp_path / "served"), "savedmodel", corpus.tokenizer.path)
    served = tf.saved_model.load(str(tmp_path / "served")).signatures["serving_default"]
    texts = ["Every text is a row.", "Kurz.", "これは文です。", "many words " * 30]
    outputs = {name: value.numpy() for name, value in served(texts=tf.constant(texts)).items()}
    inputs = encode(texts, corpus.tokenizer, 20)
    np.testing.assert_array_equal(outputs["token_ids"], inputs["token_ids"])
    expected = forward(encoder, inputs)
    is_real = inputs["padding_mask"] > 0
    np.testing.assert_allclose(
        outputs["sequence_output"][is_real], np.asarray(expected["sequence_output"])[is_real], atol=1e-4
    )
    np.testing.assert_allclose(outputs["pooled_output"], expected["pooled_output"], atol=1e-4)
    row = np.asarray(expected["sequence_output"])[1, 1 : is_real[1].sum() - 1]
    np.testing.assert_allclose(outputs["sentence_vectors"][1], row.mean(axis=0), atol=1e-4)


def in_graph(encoder, inputs):
    """Its outputs by a graph of rows of any length, as a served one is, where 16 bits are summed in 16 bits."""
    rows = {name: tf.TensorSpec([None, None], tf.int32, name) for name in inputs}
    return tf.function(lambda x: encoder(x, training=False), input_signature=[rows], autograph=False)(inputs)


@pytest.mark.skipif(keras.config.backend() != "tensorflow", reason="a SavedModel is made on TensorFlow")
@pytest.mark.parametrize("dtype", ["mixed_bfloat16", "float16"])
def test_a_saved_model_of_few_bits_gives_float32(corpus, tmp_path, dtype):
    encoder = random_encoder(vocabulary_size=corpus.tokenizer.vocabulary_size, num_layers=1, dtype=dtype)
    write(encoder, str(tmp_path / "served"), "savedmodel", corpus.tokenizer.path)
    served = tf.saved_model.load(str(tmp_path / "served")).signatures["serving_default"]
    texts = ["Every text is a row.", "Kurz."]
    outputs = {name: value.numpy() for name, value in served(texts=tf.constant(texts)).items()}
    assert {str(value.dtype) for value in outputs.values()} == {"int32", "float32"}
    inputs = {
        key: rows[:, : outputs["token_ids"].shape[1]] for key, rows in encode(texts, corpus.tokenizer, 20).items()
    }
    expected = in_graph(encoder, inputs)
    is_real = inputs["padding_mask"] > 0
    states = np.asarray(expected["sequence_output"], "float32")
    np.testing.assert_allclose(outputs["sequence_output"][is_real], states[is_real], rtol=2**-6, atol=2e-2)
    for row, real, vector in zip(outputs["sequence_output"], is_real, outputs["sentence_vectors"], strict=True):
        np.testing.assert_allclose(vector, row[1 : real.sum() - 1].mean(axis=0), atol=1e-5)


def test_a_saved_model_needs_a_tokenizer(tmp_path):
    if keras.config.backend() == "tensorflow":
        with pytest.raises(UserError, match="name one with --tokenizer MODEL"):
            write(random_encoder(), str(tmp_path / "out"), "savedmodel", None)
    assert not list(tmp_path.iterdir())


def test_a_tokenizer_is_written_under_the_name_of_the_format(corpus, tmp_path):
    encoder = random_encoder()
    write(encoder, str(tmp_path / "preset"), "preset", corpus.tokenizer.path)
    convert(str(tmp_path / "preset"), str(tmp_path / "hf"), "preset", "huggingface")
    for path in (tmp_path / "preset/tokenizer.model", tmp_path / "hf/sentencepiece.model"):
        assert path.read_bytes() == corpus.tokenizer.path.read_bytes()
    with pytest.raises(UserError, match="the tokenizer has 900 pieces and the model only 50 rows"):
        write(random_encoder(vocabulary_size=50), str(tmp_path / "small"), "preset", corpus.tokenizer.path)


def test_xlm_rs_tokenizer_is_renumbered(corpus, tmp_path):
    # a model as fairseq's: <unk>, <s>, </s>, then pieces; XLM-R adds one to each id and puts <s> <pad> </s> <unk> first
    original = message_class()()
    original.ParseFromString(corpus.tokenizer.path.read_bytes())
    pieces = [piece for piece in original.pieces if piece.type == 1]
    kinds = message_class().SentencePiece
    del original.pieces[:]
    for name, kind in (("<unk>", kinds.UNKNOWN), ("<s>", kinds.CONTROL), ("</s>", kinds.CONTROL)):
        original.pieces.add(piece=name, score=0.0, type=kind)
    original.pieces.extend(pieces)
    spec = original.trainer_spec
    spec.unk_piece, spec.bos_piece, spec.eos_piece, spec.pad_id = "<unk>", "<s>", "</s>", -1
    spec.unk_id, spec.bos_id, spec.eos_id = 0, 1, 2
    fairseq = tmp_path / "in" / "sentencepiece.bpe.model"
    fairseq.parent.mkdir()
    fairseq.write_bytes(original.SerializeToString())
    rows = len(original.pieces) + 2
    write(random_encoder(vocabulary_size=rows), str(tmp_path / "preset"), "preset", fairseq)
    ours = Tokenizer(tmp_path / "preset/tokenizer.model")
    assert (ours.cls_id, ours.pad_id, ours.sep_id, ours.unk_id, ours.mask_id) == (0, 1, 2, 3, rows - 1)
    theirs = sentencepiece.SentencePieceProcessor(model_file=str(fairseq))
    text = "Jeder hat das Recht auf Leben."
    assert ours.encode(text) == [i + 1 for i in theirs.encode(text)]


def test_a_folder_that_is_not_a_preset_is_reported(tmp_path):
    with pytest.raises(UserError, match="is not a keras-hub preset"):
        read_preset(tmp_path)
    (tmp_path / "config.json").write_text('{"registered_name": "keras_hub>BertBackbone"}')
    with pytest.raises(UserError, match="is a preset of 'keras_hub>BertBackbone'"):
        read_preset(tmp_path)
    with pytest.raises(UserError, match="savedmodel cannot be read; readable formats are huggingface, tf1, preset"):
        convert(str(tmp_path), str(tmp_path / "out"), "savedmodel", "preset")


MAP = keras.dtype_policies.DTypePolicyMap("float32", {"block_1/.*": keras.dtype_policies.DTypePolicy("bfloat16")})


@pytest.mark.parametrize("dtype", ["bfloat16", "mixed_bfloat16", MAP], ids=["bfloat16", "mixed", "map"])
def test_an_encoder_keeps_its_dtype(dtype, tmp_path):
    encoder = random_encoder(dtype=dtype)
    encoder.save_to_preset(str(tmp_path / "preset"))
    convert(str(tmp_path / "preset"), str(tmp_path / "again"), "preset", "preset")
    converted, _ = read_preset(tmp_path / "again")
    reallocate(converted, str(tmp_path / "deeper"), Plan(num_layers=4))
    deeper, _ = read_preset(tmp_path / "deeper")
    for again, places in ((converted, (0, 1)), (deeper, (0, 2))):
        assert type(again.dtype_policy) is type(encoder.dtype_policy)
        for place, theirs in zip(places, encoder.parts.blocks, strict=True):
            ours = again.parts.blocks[place]
            assert ours.feed_forward.up.dtype_policy == theirs.feed_forward.up.dtype_policy
            np.testing.assert_array_equal(np.asarray(ours.feed_forward.up.kernel), theirs.feed_forward.up.kernel)


def test_a_target_is_written_by_one_process_at_a_time_and_what_a_kill_left_goes(tmp_path):
    left = tmp_path / ".out.writing"
    (left / "old").mkdir(parents=True)
    with written_whole(tmp_path / "out") as folder:
        (folder / "weights").write_text("whole")
        with pytest.raises(UserError, match=r"another process is writing .*out: wait"), written_whole(tmp_path / "out"):
            pytest.fail("it would write among the files of the first")
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["weights"]
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_a_link_to_what_is_gone_is_no_target(tmp_path):
    (tmp_path / "out").symlink_to(tmp_path / "gone")
    with pytest.raises(UserError, match="out already exists: remove it or choose another folder"):
        convert("rembed_small", str(tmp_path / "out"), "preset", "preset")
