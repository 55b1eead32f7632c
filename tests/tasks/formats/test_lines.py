import gzip

import pytest

from rembed_keras.data.text import read_exact_lines
from rembed_keras.errors import UserError
from rembed_keras.tasks.formats.lines import field, read_objects, read_rows

ODD = "\ufeff a\u2028b \t\r\n\n\ufeffc\u0085\x0b\n\td"


@pytest.mark.parametrize("name", ["odd.tsv", "odd.tsv.gz"])
def test_lines_end_at_line_feeds_alone_and_keep_everything_else(name, tmp_path):
    raw = ODD.encode()
    (tmp_path / name).write_bytes(gzip.compress(raw) if name.endswith("gz") else raw)
    # the mark at the file's beginning goes, one in the text stays
    assert list(read_exact_lines(tmp_path / name)) == [" a\u2028b \t", "", "\ufeffc\u0085\x0b", "\td"]
    assert "".join(read_exact_lines(tmp_path / name, keep_ends=True)) == ODD.removeprefix("\ufeff")


def test_files_that_cannot_be_read(tmp_path):
    (tmp_path / "latin.tsv").write_bytes("a\ntür".encode("latin-1"))
    (tmp_path / "half.tsv.gz").write_bytes(gzip.compress(b"a\n" * 9000)[:-9])
    for name, message in {
        "latin.tsv": r"latin\.tsv, line 2 is not UTF-8",
        "half.tsv.gz": r"half\.tsv\.gz is not a whole gzip file",
        "none.tsv": r"none\.tsv: No such file",
    }.items():
        with pytest.raises(UserError, match=message):
            list(read_exact_lines(tmp_path / name))


def test_quotes_are_ordinary_characters_with_tabs_and_quote_cells_with_commas(tmp_path):
    (tmp_path / "a.tsv").write_text('x\t"y\n\n"z"\t\n')
    assert list(read_rows(tmp_path / "a.tsv")) == [(1, ["x", '"y']), (3, ['"z"', ""])]
    (tmp_path / "a.csv").write_text('x,"two\nlines, ""so"""\r\n\r\ny,\u2028\r\n', newline="")
    assert list(read_rows(tmp_path / "a.csv")) == [(1, ["x", 'two\nlines, "so"']), (4, ["y", "\u2028"])]
    (tmp_path / "a.txt").write_text('x;"y"\n')
    assert list(read_rows(tmp_path / "a.txt", ";")) == [(1, ["x", "y"])]


def test_a_cell_may_be_a_document(tmp_path):
    """Python's csv reads no cell over 131,072 characters by default."""
    text = "word " * 60_000
    (tmp_path / "a.csv").write_text(f'text,label\n"{text}",x\n')
    assert list(read_rows(tmp_path / "a.csv")) == [(1, ["text", "label"]), (2, [text, "x"])]


def test_malformed_tables_are_named(tmp_path):
    (tmp_path / "a.csv").write_text('x,y\nx,"no end\nx,y\n')
    with pytest.raises(UserError, match=r"a\.csv, line 2 is not CSV: unexpected end of data"):
        list(read_rows(tmp_path / "a.csv"))
    with pytest.raises(UserError, match=r"says no format: let it end in \.jsonl, \.tsv or \.csv"):
        list(read_rows(tmp_path / "a.txt.gz"))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"a": 1}\n\n[{"a": 1}]\n', "line 3 begins a JSON array"),
        ('{"a": 1}\n{"a": \n', "line 2 is not JSON: Expecting value"),
        ('"a"\n', 'line 1 is not a JSON object, but "a"'),
    ],
)
def test_malformed_json_lines_are_named(text, message, tmp_path):
    (tmp_path / "a.jsonl").write_text(text)
    with pytest.raises(UserError, match=rf"a\.jsonl, {message}"):
        list(read_objects(tmp_path / "a.jsonl"))


def test_objects_know_their_lines(tmp_path):
    (tmp_path / "a.jsonl").write_text('\ufeff{"a": "\u2028"}\r\n \n{}\n', encoding="utf-8", newline="")
    assert list(read_objects(tmp_path / "a.jsonl")) == [(1, {"a": "\u2028"}), (3, {})]


def test_fields_have_types():
    assert field({"a": [1]}, "a", list, "x") == [1]
    with pytest.raises(UserError, match="x has no text; did you mean texts"):
        field({"texts": ""}, "text", str, "x")
    with pytest.raises(UserError, match="x: a is True, not a whole number"):
        field({"a": True}, "a", int, "x")
    with pytest.raises(UserError, match="x is not an object with a"):
        field(["a"], "a", str, "x")
