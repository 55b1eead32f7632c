"""What is printed of a corpus, in a terminal of any width."""

from types import SimpleNamespace

import pytest

from rembed_keras.analysis.prepared import show_prepared
from rembed_keras.data.prepare.cleaning import VERDICTS


@pytest.mark.parametrize("width", [30, 40, 60, 80])
def test_counts_of_paragraphs_keep_all_digits(width, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", str(width))
    verdicts = {"zh-Hant": dict(zip(VERDICTS, (12_345_678, 2_345_679, 3_456_789, 4_567_891), strict=True))}
    corpus = SimpleNamespace(
        verdicts=verdicts, num_tokens={"zh-Hant": 9}, num_held_out={}, languages=["zh-Hant"], manifest={},
        tokenizer=SimpleNamespace(vocabulary_size=99), unknown_shares={},
    )  # fmt: skip
    show_prepared(corpus, "corpus", 1.0, tmp_path)
    shown = capsys.readouterr().out
    assert all(f"{count:,}" in shown for count in verdicts["zh-Hant"].values()) and "zh-Hant" in shown
