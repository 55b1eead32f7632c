"""What stands beside a source is read before a target is written."""

import pytest

from rembed_keras.interop import write
from rembed_keras.modeling import Encoder

COMMANDS = [
    ["convert", "preset", "out", "--from", "preset", "--to", "preset"],
    ["reallocate", "preset", "out", "--input-embedding-dim", "4"],
    ["trim", "preset", "out", "--text", "text"],
    ["extend", "preset", "out", "--pieces", "pieces"],
    ["merge", "preset", "preset", "out"],
]


@pytest.mark.parametrize("words", COMMANDS, ids=lambda words: words[0])
def test_nothing_is_written_where_what_stands_beside_the_source_cannot_be_read(words, corpus, tmp_path, command):
    write(Encoder(900, 1, 2, 8, 8, 6), str(tmp_path / "preset"), "preset", corpus.tokenizer.path)
    (tmp_path / "preset/pretraining.json").write_text('{"pretraining_languages": "de"}')
    (tmp_path / "pieces").write_text("\u2581newest\n")
    (tmp_path / "text").mkdir()
    (tmp_path / "text/de.txt").write_text("Alle Menschen sind frei.\n")
    code, _, err = command(*words, cwd=tmp_path)
    assert code == 2 and "pretraining.json: pretraining_languages are 'de', not a list of texts" in err
    assert not (tmp_path / "out").exists()
