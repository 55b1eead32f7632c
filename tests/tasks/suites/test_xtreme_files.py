import pytest

from rembed_keras.errors import UserError
from rembed_keras.tasks.suites.xtreme_files import (
    read_bucc,
    read_pairs,
    read_tagged,
    read_tatoeba,
    unquote,
)


def put(folder, text, name="x.tsv"):
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


@pytest.mark.parametrize(
    ("written", "cell"),
    [
        ('"a ""b"" c"', 'a "b" c'),
        ('"""a"""', '"a"'),
        ('""""" R """" x"', '"" R "" x'),
        ('"a"', '"a"'),
        ('"" R ""', '"" R ""'),
        ('a ""b""', 'a ""b""'),
        ('""', '""'),
        ('"', '"'),
    ],
)
def test_only_what_the_csv_module_quoted_is_unquoted(written, cell):
    assert unquote(written) == cell


PAIR_MISTAKES = {
    r"x\.tsv, line 2: label 'positve' is none of positive, negative; did you mean positive\?": (
        "a\tb\tnegative\na\tb\tpositve\n"
    ),
    r"x\.tsv, line 2: label '' is none of": "a\tb\tpositive\na\tb\t\n",
    r"x\.tsv, line 2 has 2 columns; there must be 3": "a\tb\tpositive\na\tb\n",
    r"x\.tsv, line 3 has 4 columns; there must be 3": "a\tb\tpositive\n\na\tb\tc\tpositive\n",
    r"x\.tsv, line 1 has 2 columns; there must be 3": "a\tb\n",
    r"x\.tsv, line 2 is not UTF-8": b"a\tb\tpositive\n\xff\tb\tpositive\n",
    r"x\.tsv has no example of negative: every class needs training data": "a\tb\tpositive\n",
    r"x\.tsv has no examples": "\n\n",
}


@pytest.mark.parametrize("message", PAIR_MISTAKES)
def test_mistakes_in_pairs_are_named(message, tmp_path):
    with pytest.raises(UserError, match=message):
        read_pairs(put(tmp_path, PAIR_MISTAKES[message]), ["positive", "negative"], "train")


def test_only_a_test_set_may_be_unlabeled_and_then_as_a_whole(tmp_path):
    path = put(tmp_path, "a\tb\na\tb\tpositive\n")
    with pytest.raises(UserError, match="line 2 has 3 columns; there must be 2"):
        read_pairs(path, ["positive"], "test")
    with pytest.raises(UserError, match="line 1 has 2 columns; there must be 3"):
        read_pairs(path, ["positive"], "dev")
    assert read_pairs(put(tmp_path, "a\tb\tnegative\n"), ["positive", "negative"], "dev"), "only training needs all"


TAG_MISTAKES = {
    r"x\.tsv, line 3: tag 'B-PERS' is none of O, B-PER; did you mean B-PER\?": "a\tO\n\nb\tB-PERS\n",
    r"x\.tsv, line 2 has 1 columns; there must be 2": "a\tO\nb\n",
    r"x\.tsv, line 1 has 3 columns; there must be 2": "a\tO\tO\n",
    r"x\.tsv, line 2: tag '' is none of O": "a\tO\nb\t\n",
    r"x\.tsv has no example of B-PER": "a\tO\n",
    r"x\.tsv has no sentences": "\n \n",
}


@pytest.mark.parametrize("message", TAG_MISTAKES)
def test_mistakes_in_tags_are_named(message, tmp_path):
    with pytest.raises(UserError, match=message):
        read_tagged(put(tmp_path, TAG_MISTAKES[message]), ["O", "B-PER"], "train")


def test_all_words_have_tags_or_none(tmp_path):
    with pytest.raises(UserError, match="line 2 has 2 columns; there must be 1"):
        read_tagged(put(tmp_path, "a\nb\tO\n"), ["O"], "test")
    with pytest.raises(UserError, match="line 1 has 1 columns; there must be 2"):
        read_tagged(put(tmp_path, "a\n"), ["O"], "dev")


def test_mistakes_in_bitexts_are_named(tmp_path):
    put(tmp_path, "en-1\tOne\n", "de-en.dev.en")
    put(tmp_path, "de-1\tEins\nde-1\tZwei\n", "de-en.dev.de")
    with pytest.raises(UserError, match=r"de-en\.dev\.de, line 2 has the id de-1 again"):
        read_bucc(tmp_path, "de", "dev")
    put(tmp_path, "de-1\tEins\nZwei\n", "de-en.dev.de")
    with pytest.raises(UserError, match=r"de-en\.dev\.de, line 2 is not id<TAB>sentence"):
        read_bucc(tmp_path, "de", "dev")
    put(tmp_path, "\n", "de-en.dev.de")
    with pytest.raises(UserError, match=r"de-en\.dev\.de has no sentences"):
        read_bucc(tmp_path, "de", "dev")
    put(tmp_path, "de-1\tEins\n", "de-en.dev.de")
    with pytest.raises(UserError, match=r"de-en\.dev\.gold: No such file"):
        read_bucc(tmp_path, "de", "dev")
    for gold in ("en-1\tde-1\n", "de-1\ten-1\tx\n", "de-01\ten-1\n"):
        put(tmp_path, "de-1\ten-1\n" + gold, "de-en.dev.gold")
        with pytest.raises(UserError, match=r"de-en\.dev\.gold, line 2 is not the ids of a sentence of de"):
            read_bucc(tmp_path, "de", "dev")


def test_parallel_files_of_different_length_are_named(tmp_path):
    put(tmp_path, "One\nTwo\n", "de-en.en")
    put(tmp_path, "Eins\n", "de-en.de")
    with pytest.raises(UserError, match=r"de-en\.en has 2 lines and .*de-en\.de 1: they must agree"):
        read_tatoeba(tmp_path, "de")
    for name in ("de-en.en", "de-en.de"):
        put(tmp_path, "", name)
    with pytest.raises(UserError, match=r"de-en\.en has 0 lines"):
        read_tatoeba(tmp_path, "de")
