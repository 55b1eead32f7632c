"""A tokenizer, and a preset with it, that the tests of texts share."""

import gzip

import keras
import pytest

from rembed_keras import Encoder, MaskedLM, MaskedLMPreprocessor, Tokenizer
from rembed_keras.data import sample


@pytest.fixture(scope="session")
def lines():
    return gzip.decompress((sample.text_folder() / "en.txt.gz").read_bytes()).decode().splitlines()[:120]


@pytest.fixture(scope="session")
def tokenizer(lines):
    return Tokenizer.train(lines, 400)


@pytest.fixture(scope="session")
def preset(tokenizer, tmp_path_factory):
    keras.utils.set_random_seed(0)
    encoder = Encoder(400, 1, 2, 8, 16, 4, max_sequence_length=32)
    folder = str(tmp_path_factory.mktemp("preset") / "own")
    MaskedLM(encoder, 12, preprocessor=MaskedLMPreprocessor(tokenizer, mask_rate=0.2)).save_to_preset(folder)
    return folder
