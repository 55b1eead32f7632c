"""One text comes in many forms, and batches of texts in those that are preprocessed."""

from collections.abc import Sequence
from functools import partial

import keras
import numpy as np
import pytest

from rembed_keras import Classifier, Encoder, MaskedLM, MaskedLMPreprocessor, TextClassifierPreprocessor
from rembed_keras.errors import UserError
from rembed_keras.modeling import LateMaskedLM
from rembed_keras.modeling.texts.strings import are_texts, is_in_memory, is_table
from tests.modeling.forward import QUICK

TEXT = "the file is open"
TEXTS = [TEXT, "a table"]


def tensor(values):
    return pytest.importorskip("tensorflow").constant(values)


@pytest.fixture(scope="module")
def encoder(tokenizer):
    encoder = Encoder(400, 1, 2, 8, 16, 4, max_sequence_length=32)
    encoder.preprocessor = TextClassifierPreprocessor(tokenizer, 16)
    return encoder


@pytest.fixture(scope="module")
def classifier(encoder):
    model = Classifier(encoder, 2, dropout=0.0)
    model.compile(keras.optimizers.SGD(0.1), **QUICK)
    return model


@pytest.fixture(scope="module")
def masked(encoder, tokenizer):
    """A model that stays as it is when it is trained."""
    model = MaskedLM(encoder, 8, preprocessor=MaskedLMPreprocessor(tokenizer, 16))
    model.compile(keras.optimizers.SGD(0.0), **QUICK)
    return model


ONE = {
    "string": TEXT,
    "bytes": TEXT.encode(),
    "array": np.array(TEXT),
    "array of bytes": np.array(TEXT.encode()),
    "array of objects": np.array(TEXT, object),
    "tensor": lambda: tensor(TEXT),
}
MANY = {
    "array": np.array(TEXTS),
    "array of objects": np.array(TEXTS, object),
    "tensor": lambda: tensor(TEXTS),
    "tensors": lambda: [tensor(text) for text in TEXTS],
}


def made(forms, form):
    return forms[form]() if callable(forms[form]) else forms[form]


@pytest.mark.parametrize("form", ONE)
def test_one_text_is_one_in_every_form(form, tokenizer, encoder, classifier):
    text = made(ONE, form)
    assert tokenizer(text) == tokenizer(TEXT)
    np.testing.assert_array_equal(encoder.preprocessor(text)["token_ids"], encoder.preprocessor([TEXT])["token_ids"])
    np.testing.assert_array_equal(encoder.encode(text), encoder.encode([TEXT]))
    assert isinstance(encoder.similarity(text, TEXT), float)
    expected = classifier.predict([TEXT], verbose=0)
    np.testing.assert_array_equal(classifier.predict(text, verbose=0), expected)


@pytest.mark.parametrize("text", [b"the [MASK] is open", np.array("the [MASK] is open")])
def test_one_text_with_a_mask_is_one_in_every_form(text, masked):
    assert masked.fill_mask(text, top=3) == masked.fill_mask("the [MASK] is open", top=3)
    assert masked.fill_mask([text], top=3) == masked.fill_mask(["the [MASK] is open"], top=3)


@pytest.mark.parametrize("form", MANY)
def test_texts_are_those_of_a_list_in_every_form(form, tokenizer, encoder):
    texts = made(MANY, form)
    assert tokenizer(texts) == tokenizer(TEXTS)
    np.testing.assert_array_equal(encoder.encode(texts), encoder.encode(TEXTS))


class Column(Sequence):
    """As one of `datasets`, which is neither a list nor an array."""

    def __getitem__(self, number):
        return TEXTS[number]

    def __len__(self):
        return len(TEXTS)


@pytest.mark.parametrize("form", ["column", "chunks"])
def test_columns_that_are_no_arrays_are_texts(form, encoder):
    texts = Column() if form == "column" else pytest.importorskip("pyarrow").chunked_array([TEXTS[:1], TEXTS[1:]])
    for ours, plain in (((texts, texts), (TEXTS, TEXTS)), (texts, TEXTS)):
        expected = encoder.preprocessor(plain)["token_ids"]
        np.testing.assert_array_equal(encoder.preprocessor(ours)["token_ids"], expected)
    assert is_in_memory(texts) and not is_table(texts)  # so that `fit` and others tokenize them
    assert not are_texts(Column()[:0]) and not are_texts(range(2))


class Table:
    """As a DataFrame of pandas: a list of it has the names of its columns."""

    columns = ("text",)

    def __iter__(self):
        return iter(self.columns)


def batches_of_columns():
    return pytest.importorskip("tensorflow").data.Dataset.from_tensor_slices({"text": TEXTS}).batch(2)


@pytest.mark.parametrize("make", [Table, lambda: {"text": TEXTS}, batches_of_columns])
def test_names_of_columns_are_not_read_as_texts(make, encoder, classifier, masked):
    calls = [lambda: classifier.predict(make(), verbose=0), lambda: masked.fit(make(), verbose=0)]
    calls += [lambda: encoder.encode(make())] * (make is not batches_of_columns)
    for call in calls:
        with pytest.raises(UserError, match="texts are one column") as why:
            call()
        assert "\n" not in str(why.value)  # and none of the texts


KINDS_OF_DATA = ["tensorflow", "grain", pytest.param("streams of grain", id="stream_batches_of_grain")]


def single_rows(of, columns):
    """A data set of one row at a time."""
    if of == "tensorflow":
        return pytest.importorskip("tensorflow").data.Dataset.from_tensor_slices(columns)
    source = pytest.importorskip("grain").MapDataset.source(range(2))
    one = source.map(lambda i: tuple(map(partial(_row, i), columns)) if isinstance(columns, tuple) else columns[i])
    return one if of == "grain" else one.to_iter_dataset()


def _row(i, column):
    return {key: each[i] for key, each in column.items()} if isinstance(column, dict) else column[i]


@pytest.mark.parametrize("loop", ["fit", "evaluate", "predict"])
@pytest.mark.parametrize("of", KINDS_OF_DATA[:2])  # a stream knows no end
def test_a_data_set_without_batches_is_refused(of, loop, classifier):
    batches = single_rows(of, (TEXTS, [0, 1]))[2:] if of == "grain" else single_rows(of, (TEXTS, [0, 1])).skip(2)
    with pytest.raises(UserError, match="the data set has no batches"):
        getattr(classifier, loop)(batches, verbose=0)


@pytest.mark.filterwarnings("ignore:Your input ran out of data:UserWarning")  # Keras's, of any stream
@pytest.mark.parametrize("is_tokenized", [False, True])
@pytest.mark.parametrize("of", KINDS_OF_DATA)
def test_a_data_set_that_gives_one_text_at_a_time_is_predicted_for_and_not_learnt_from(of, is_tokenized, classifier):
    single = single_rows(of, (classifier.preprocessor(TEXTS) if is_tokenized else TEXTS, [0, 1]))
    for learn in (classifier.fit, classifier.evaluate, lambda x, **_: classifier.fit(TEXTS, [0, 1], validation_data=x)):
        with pytest.raises(UserError, match=r"end it with \.batch"):
            learn(single, verbose=0)
    found = classifier.predict(single_rows(of, TEXTS), verbose=0)
    np.testing.assert_allclose(found, classifier.predict(TEXTS, verbose=0), atol=1e-5)


@pytest.mark.parametrize("of", ["tensorflow", pytest.param("grain", id="batches_of_grain")])
@pytest.mark.parametrize("is_tokenized", [False, True])
def test_labels_of_data_sets_are_checked(of, is_tokenized, encoder, classifier):
    x, labels = encoder.preprocessor(TEXTS) if is_tokenized else TEXTS, np.array([0, 2])
    if of == "tensorflow":
        batches = pytest.importorskip("tensorflow").data.Dataset.from_tensor_slices((x, labels)).batch(2)
    else:
        rows = [{key: each[i] for key, each in x.items()} for i in range(2)] if is_tokenized else TEXTS
        batches = pytest.importorskip("grain").MapDataset.source([*zip(rows, labels, strict=True)]).batch(2)
    with pytest.raises(Exception, match="there is no label 2: num_classes is 2"):  # of TensorFlow's within tf.data
        classifier.evaluate(batches, verbose=0)


def test_the_second_of_two_texts_is_not_left_out(masked):
    pairs = pytest.importorskip("tensorflow").data.Dataset.from_tensor_slices(((TEXTS, TEXTS),)).batch(2)
    with pytest.raises(UserError, match="there are 2 lists in a tuple; a row has one text"):
        masked.fit(pairs, verbose=0)


def test_tensors_of_texts_are_preprocessed(classifier, masked):
    texts, labels = tensor(TEXTS), tensor([0, 1])
    expected = classifier.predict(TEXTS, verbose=0)
    np.testing.assert_array_equal(classifier.predict(texts, verbose=0), expected)
    logs = classifier.evaluate(TEXTS, [0, 1], verbose=0)
    assert classifier.evaluate(texts, labels, verbose=0) == logs
    assert classifier.fit(texts, labels, verbose=0).history["loss"][0] == pytest.approx(logs[0], rel=1e-5)
    assert np.isfinite(masked.fit(texts, verbose=0).history["loss"][0])


@pytest.mark.parametrize("form", ["list", *MANY])
def test_an_objective_is_validated_on_texts_alone(form, masked):
    if form == "tensors":
        pytest.skip("no list that Keras knows")
    texts = TEXTS if form == "list" else made(MANY, form)
    expected = float(masked.evaluate(TEXTS, verbose=0)[0])
    logs = masked.fit(TEXTS, validation_data=texts, verbose=0).history
    assert logs["val_loss"][0] == pytest.approx(expected, rel=1e-5)


class Batches(keras.utils.PyDataset):
    def __init__(self, batch):
        super().__init__()
        self.batch = batch

    def __len__(self):
        return 2

    def __getitem__(self, index):
        return self.batch


def generator(batch):
    yield batch
    yield batch


class Loader:
    """What tells a DataLoader of PyTorch's, which gives lists."""

    batch_sampler = collate_fn = None

    def __init__(self, batch):
        self.batch = batch

    def __iter__(self):
        yield [*self.batch]


def loader_of_grain(batch):
    grain = pytest.importorskip("grain")
    columns = [[*zip(*each, strict=True)] if isinstance(each, tuple) else each for each in batch]
    rows = [*zip(*columns, strict=True)]
    sampler = grain.samplers.IndexSampler(2, shard_options=grain.sharding.NoSharding(), num_epochs=1, seed=0)
    return grain.DataLoader(data_source=rows, sampler=sampler, operations=[grain.transforms.Batch(2)])


@pytest.mark.parametrize("make", [Batches, generator, Loader, loader_of_grain])
@pytest.mark.parametrize("batch", [(TEXTS, np.array([0, 1])), ((TEXTS, TEXTS), np.array([0, 1])), (np.array(TEXTS),)])
def test_texts_of_generators_are_refused(make, batch, classifier):
    calls = (
        lambda: classifier.fit(make(batch), verbose=0),
        lambda: classifier.evaluate(make(batch), verbose=0),
        lambda: classifier.predict(make(batch), verbose=0),
        lambda: classifier.fit(TEXTS, [0, 1], validation_data=make(batch), verbose=0),
    )
    for call in calls:
        with pytest.raises(UserError, match=r"tf\.data or Grain, and not from a generator or a PyDataset"):
            call()


@pytest.mark.filterwarnings("ignore:Your input ran out of data:UserWarning")  # Keras's, of any generator
@pytest.mark.parametrize("make", [Batches, generator])
def test_generators_of_ids_give_all_of_their_batches(make, classifier):
    x, y = classifier.preprocessor(TEXTS), np.array([0, 1], np.int32)
    before = int(classifier.optimizer.iterations)
    logs = classifier.fit(make((x, y)), validation_data=make((x, y)), shuffle=False, verbose=0).history
    assert int(classifier.optimizer.iterations) == before + 2
    assert logs["val_loss"][0] == pytest.approx(classifier.evaluate(x, y, verbose=0)[0], rel=1e-5)


@pytest.mark.any_backend
@pytest.mark.parametrize("what", [None, 3])
def test_what_is_no_text_is_named(what, encoder, masked):
    for call in (encoder.encode, lambda given: encoder.similarity("a", given), masked.fill_mask):
        with pytest.raises(UserError, match=f"{what} is no text, nor a list of texts"):
            call(what)


def test_a_model_without_a_tokenizer_says_so():
    model = MaskedLM(Encoder(400, 1, 2, 8, 16, 4), 8)
    for loop in (model.fit, model.evaluate, model.predict):
        with pytest.raises(UserError, match="there is no tokenizer"):
            loop(TEXTS, verbose=0)


@pytest.mark.any_backend
@pytest.mark.parametrize("longest", [128, 512])
def test_late_masking_reads_as_much_of_short_texts_as_of_whole_rows(longest, tokenizer):
    """Of which there are slots for more masked tokens than a short row has tokens."""
    keras.utils.set_random_seed(3)
    encoder = Encoder(400, 1, 2, 8, 16, 4, max_sequence_length=longest)
    model = LateMaskedLM(encoder, 8, decoder_layers=1, preprocessor=MaskedLMPreprocessor(tokenizer))
    for weight in model.trainable_weights:
        weight.assign(weight + 0.3 * keras.random.normal(weight.shape))  # so that losses depend on what is read
    model.compile("sgd", **QUICK)
    x, y, weights = model.preprocessor(TEXTS)
    whole = model.evaluate(x, y, sample_weight=weights, verbose=0)
    assert {type(log) for log in whole} == {float}
    np.testing.assert_allclose(model.evaluate(TEXTS, verbose=0), whole, rtol=1e-5)
