"""A folder of text: what is read of it, and what is refused instead of being left out."""

import os
from contextlib import nullcontext

import pytest

from rembed_keras.analysis.prepared import show_prepared
from rembed_keras.data.prepare.corpora import prepare
from rembed_keras.data.prepare.sources import find_source, left_out
from rembed_keras.data.text import read_exact_lines, text_files
from rembed_keras.errors import UserError


@pytest.mark.parametrize("left_out", ["de.txt.bz2", "de.txt.zst", "de.TXT", "de.Txt.GZ", "de.jsonl.xz", "\udcff.txt"])
def test_text_of_a_wanted_language_is_read_or_refused(left_out, tmp_path):
    for name in ("en.txt", "en.txt.bz2", "README.md", "stats.json", left_out):
        (tmp_path / name).write_text("text\n")
    (tmp_path / "fr.txt.xz").mkdir()
    with pytest.raises(UserError, match=r"which is not read and would be left out|is not UTF-8: rename it"):
        text_files(tmp_path)
    if left_out.startswith("de"):  # as `rembed trim --languages en` has it
        assert [*text_files(tmp_path, ["en"])] == ["en"]
    (tmp_path / left_out).unlink()
    assert [*text_files(tmp_path)] == ["en"]


def test_a_folder_without_text_names_what_is_not_read(tmp_path):
    (tmp_path / "web").mkdir()
    (tmp_path / "web" / "en.arrow").write_text("ARROW1")
    with pytest.raises(UserError, match=r"has no \.txt\.gz, .* files: write the text of 'web/en\.arrow' as one of"):
        find_source(tmp_path)
    (tmp_path / "de.txt.bz2").write_text("text\n")
    with pytest.raises(UserError, match=r"has de\.txt\.bz2, which is not read and would be left out"):
        find_source(tmp_path)


@pytest.mark.parametrize("name", ["de.txt", "de/2.jsonl", "de.jsonl"])
def test_a_pipe_is_refused_as_what_it_is(name, tmp_path):
    (tmp_path / "de").mkdir()
    (tmp_path / f"en.{name.rpartition('.')[2]}").write_text('{"text": "a"}\n')
    os.mkfifo(tmp_path / name)
    with pytest.raises(UserError, match=f"{name} is no file: write its text into one"):
        find_source(tmp_path)


@pytest.mark.parametrize("name", ["de.txt", "de/2.jsonl"])
def test_a_link_to_text_that_is_gone_is_refused(name, tmp_path):
    ending = name.rpartition(".")[2]
    (tmp_path / "de").mkdir()
    (tmp_path / f"en.{ending}").write_text('{"text": "a"}\n')
    (tmp_path / f"fr.{ending}").mkdir()  # no text, whatever its name
    (tmp_path / name).symlink_to(tmp_path / "gone")
    with pytest.raises(UserError, match=f"{name} is a link to what is gone: bring that back, or remove the link"):
        find_source(tmp_path)
    (tmp_path / name).unlink()
    assert len(find_source(tmp_path).files) == 1


@pytest.mark.parametrize(
    ("read", "packed", "language", "is_left_out"),
    [
        ("ar.txt", "arz.txt.xz", "ar", False),
        ("ar.txt", "arz/0.txt.xz", "ar", False),
        ("ar.txt", "ar/0.txt.xz", "ar", True),
        ("ar.jsonl", "arz.jsonl.xz", "ar", False),
        ("ar/0.jsonl", "ar/1.jsonl.xz", "ar", True),
        ("part-0.jsonl", "part-1.jsonl.xz", "ar", True),  # whose documents may be of any language
        ("AA/wiki_00", "AA/wiki_01.xz", "text", True),
    ],
)
def test_packed_text_is_refused_where_it_may_be_of_a_wanted_language(read, packed, language, is_left_out, tmp_path):
    folder = tmp_path / "text"
    for name in (read, packed):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text('{"text": "eins", "language": "ar"}\n')
    with pytest.raises(UserError, match=f"{packed}, which is not read") if is_left_out else nullcontext():
        assert [*find_source(folder, languages=[language]).files] == [read.removesuffix(".txt")]


def test_files_of_other_formats_beside_text_are_named(corpus, text_dir, tmp_path, capsys):
    text = tmp_path / "text"
    for name in ("en.txt", "README.md", "de.json", "web/de.csv.gz", "web/fr.arrow", "web/it.arrow"):
        (text / name).parent.mkdir(parents=True, exist_ok=True)
        (text / name).write_text("a\n")
    made = prepare(text, tmp_path / "out", tokenizer=corpus.tokenizer.path)
    assert not capsys.readouterr().err
    show_prepared(made, "out", 1.0, text)
    shown = "'de.json', 'web/de.csv.gz', 'web/fr.arrow' and 1 more"
    note = f"note: left out of {text}: {shown}; text is read of .txt.gz, .txt, .jsonl, .jsonl.gz, .parquet files\n"
    assert capsys.readouterr().err == note
    assert left_out(text_dir) == left_out("tfds:tiny/de:1.0.0") == []


@pytest.mark.parametrize("end", ["\r", "\n", "\r\n"])
def test_lines_end_as_on_any_system(end, tmp_path):
    lines = ["\u00e9ins", "", "zwei", "drei"]
    for last in ("", end):
        (tmp_path / "de.txt").write_bytes(("\ufeff" + end.join(lines) + last).encode())
        assert [*read_exact_lines(tmp_path / "de.txt")] == lines
        kept = [*(f"{line}{end}" for line in lines[:-1]), lines[-1] + last]
        assert [*read_exact_lines(tmp_path / "de.txt", keep_ends=True)] == kept
        for size in range(1, 30):
            read = [pair for part in find_source(tmp_path, size).parts for pair in part.read()]
            assert read == [("de", "\u00e9ins"), ("de", "zwei"), ("de", "drei")]


def test_a_carriage_return_in_a_file_of_line_feeds_is_text(tmp_path):
    (tmp_path / "de.txt").write_bytes(b"a\rb\nc\rd\re")
    assert [*read_exact_lines(tmp_path / "de.txt")] == ["a\rb", "c\rd\re"]
