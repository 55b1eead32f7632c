"""What pre-training leaves for TensorBoard besides curves: a profile of some steps, and vectors of pieces."""

import numpy as np
import pytest
from safetensors.numpy import load_file

from tests.training.pretraining import learn

pytestmark = pytest.mark.usefixtures("without_graphs")


@pytest.fixture(scope="module")
def watched(corpus, tmp_path_factory):
    """The folder of a run with a profile, which then went on."""
    import tensorflow as tf

    tf.config.run_functions_eagerly(True)
    folder = tmp_path_factory.mktemp("watched")
    for steps in (8, 16):
        learn(folder, corpus, steps=steps, profile_steps=2)
    tf.config.run_functions_eagerly(False)
    return folder


def test_a_profile_is_taken_once_and_has_what_the_host_did(watched):
    (profile,) = (watched / "tensorboard/profile").rglob("*.xplane.pb")
    assert profile.parents[2].parts[-2:] == ("plugins", "profile") or "plugins" in profile.parts
    assert b"/host:CPU" in profile.read_bytes()


def test_the_projector_has_the_vectors_of_frequent_pieces_by_language(watched, corpus):
    folder = watched / "tensorboard/pieces"
    header, *lines = (folder / "pieces.tsv").read_text(encoding="utf-8").splitlines()
    rows = [line.split("\t") for line in lines]
    vectors = np.loadtxt(folder / "vectors.tsv", delimiter="\t")
    assert header == "piece\tlanguage\tcount" and vectors.shape == (len(rows), 8)
    assert {language for _, language, _ in rows} == set(corpus.languages)
    arrays = load_file(sorted((watched / "checkpoints").glob("step-*"))[-1] / "encoder.safetensors")
    (table,) = [array for name, array in arrays.items() if "token" in name and array.shape == (900, 8)]
    counts = {name: corpus.unigram_counts(name) for name in corpus.languages}
    pieces = {corpus.tokenizer.piece(each): each for each in range(900)}
    for (piece, language, count), vector in list(zip(rows, vectors, strict=True))[::50]:
        own = pieces[piece]
        np.testing.assert_allclose(vector, table[own], rtol=1e-5)
        assert int(count) == sum(each[own] for each in counts.values())
        shares = {name: each[own] / each.sum() for name, each in counts.items()}
        assert shares[language] == pytest.approx(max(shares.values()), rel=0.02)  # special pieces are not counted
    assert 'metadata_path: "pieces.tsv"' in (folder / "projector_config.pbtxt").read_text()
