"""Tokenizers in a graph have the ids of those outside it."""

import json

import keras
import numpy as np
import pytest

from rembed_keras.data.tokenizers.opening import open_tokenizer
from rembed_keras.errors import UserError
from rembed_keras.interop import write, write_served_task
from rembed_keras.interop.in_graph import check_in_graph, in_graph
from rembed_keras.modeling import Classifier, Regressor
from rembed_keras.modeling.input_embeddings import Trigrams
from rembed_keras.tasks.kinds.encoding import encode
from tests.data.tokenizers.trained import KINDS, UDHR, lines, word_piece, write_vocabulary
from tests.interop.models import random_model
from tests.modeling.forward import forward

pytestmark = pytest.mark.skipif(keras.config.backend() != "tensorflow", reason="graphs are TensorFlow's")

TEXTS = [line for path in UDHR for line in lines(path, 0, None)[::2]]
RARE = [
    *("", "   ", "ΟΔΟΣ Σίσυφος", "a\u0301e\u0301 É İstanbul ẞ ß", "x" * 101 + " y", "x" * 100, "é" * 100),
    *("汉字abc漢字", "$5+3=8 ^~`|", "\u200bzero\u00adsoft\ufeff", "tab\tl\n\r nb\u00a0sp\u3000i\u2028l\x0b\x0c\x85"),
    "page\x0cbreak, line\x0btab, next\x85line",
    *("한국어 각", "a\x00b\ufffdc", "ﬁ ½ ①", "🙂 emoji 👍🏽", "«¿¡§ № ™", "हिन्दी", "Ǆ ǆ", "\U000e0041x", "x\ue000y"),
]


@pytest.mark.parametrize(("lowercase", "strip_accents"), [(True, None), (True, False), (False, None), (False, True)])
def test_ids_of_word_pieces_are_the_same_in_all_languages(lowercase, strip_accents, tmp_path):
    path = write_vocabulary(word_piece(lowercase, strip_accents), tmp_path, lowercase, strip_accents)
    tokenizer = open_tokenizer(path)
    found = in_graph(tokenizer).tokenize(TEXTS + RARE)
    assert len(UDHR) == 55 and found.to_list() == tokenizer.encode_batch(TEXTS + RARE)


def test_a_tokenizer_whose_file_is_gone_is_read(corpus, tmp_path):
    tokenizer = open_tokenizer(corpus.tokenizer.copy_to(tmp_path))
    tokenizer.path.unlink()  # as that of one trained in memory
    assert in_graph(tokenizer).tokenize(TEXTS[:3]).to_list() == corpus.tokenizer.encode_batch(TEXTS[:3])


def test_a_saved_model_reads_word_pieces(tmp_path):
    import tensorflow as tf

    path = write_vocabulary(word_piece(), tmp_path)
    tokenizer = open_tokenizer(path)
    model = random_model({"vocabulary_size": tokenizer.vocabulary_size, "num_layers": 1}).encoder
    write(model, str(tmp_path / "served"), "savedmodel", path)
    assert [each.name for each in (tmp_path / "served/assets").iterdir()] == ["tokenizer.json"]
    texts = ["Alle Menschen sind frei.", "Ĉiu homo"]
    serve = tf.saved_model.load(str(tmp_path / "served")).signatures["serving_default"]
    served, nothing = serve(tf.constant(texts)), serve(tf.constant([], tf.string))
    assert nothing["sentence_vectors"].shape == nothing["pooled_output"].shape == (0, model.arguments["hidden_dim"])
    inputs = encode(texts, tokenizer, served["token_ids"].shape[1])
    np.testing.assert_array_equal(served["token_ids"], inputs["token_ids"])
    expected = forward(model, inputs)["sequence_output"]
    real = inputs["padding_mask"] > 0
    np.testing.assert_allclose(served["sequence_output"].numpy()[real], expected[real], atol=1e-5)


def test_a_saved_model_reads_a_text_alone_as_beside_a_longer_one(corpus, tmp_path):
    import tensorflow as tf

    sizes = {"vocabulary_size": corpus.tokenizer.vocabulary_size, "num_layers": 1, "max_sequence_length": 20}
    encoder = random_model(sizes | {"input_embedding": Trigrams}).encoder
    write(encoder, str(tmp_path / "served"), "savedmodel", corpus.tokenizer.path)
    served = tf.saved_model.load(str(tmp_path / "served")).signatures["serving_default"]
    alone, beside = (served(texts=tf.constant(texts)) for texts in (["Kurz."], ["Kurz.", "Every text is a row."]))
    count = alone["token_ids"].shape[1]
    np.testing.assert_array_equal(alone["token_ids"][0], beside["token_ids"][0, :count])
    np.testing.assert_allclose(alone["sequence_output"][0], beside["sequence_output"][0, :count], atol=1e-5)
    full = served(texts=tf.constant(["many words " * 30]))
    assert full["token_ids"].shape == full["sequence_output"].shape[:2] == (1, 20)


@pytest.mark.parametrize(("make", "labels"), [(Classifier, []), (Classifier, ["a"]), (Regressor, ["a"])])
def test_a_served_task_has_a_name_for_each_class(make, labels, corpus, tmp_path):
    encoder = random_model({"vocabulary_size": corpus.tokenizer.vocabulary_size, "num_layers": 1}).encoder
    model = make(encoder, **({"num_classes": 2} if make is Classifier else {}))
    with pytest.raises(UserError, match=rf"has [02] classes, and {len(labels)} labels are given: name each of them"):
        write_served_task(model, tmp_path / "served", corpus.tokenizer, 16, labels)
    assert not (tmp_path / "served").exists()


@pytest.mark.parametrize("kind", ["byte_level", "unigram"])
def test_others_are_refused_in_a_line(kind, tmp_path):
    KINDS[kind]().save(str(tmp_path / "tokenizer.json"))
    model = random_model({"vocabulary_size": 3000}).encoder
    with pytest.raises(UserError, match=rf"^{tmp_path}/tokenizer.json: .* this is .*, without a twin there"):
        write(model, str(tmp_path / "served"), "savedmodel", tmp_path / "tokenizer.json")
    assert not (tmp_path / "served").exists()


def test_a_special_piece_that_was_added_is_read_as_text(tmp_path):
    path = write_vocabulary(word_piece(), tmp_path)
    added = {"zwetschge": open_tokenizer(path).vocabulary_size}
    (tmp_path / "added_tokens.json").write_text(json.dumps(added))
    (tmp_path / "special_tokens_map.json").write_text(json.dumps({"additional_special_tokens": [*added]}))
    tokenizer, texts = open_tokenizer(path), ["eine zwetschge"]
    assert tokenizer.is_special[-1] and in_graph(tokenizer).tokenize(texts).to_list() == tokenizer.encode_batch(texts)


def test_an_extended_vocabulary_is_refused(tmp_path):
    made = word_piece()
    made.add_tokens(["zwetschgenmus"])
    (tmp_path / "tokenizer.json").write_text(json.dumps(json.loads(made.to_str())))
    with pytest.raises(UserError, match="without added pieces such as 'zwetschgenmus'"):
        check_in_graph(open_tokenizer(tmp_path / "tokenizer.json"))
