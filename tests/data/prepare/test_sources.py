"""Sources of text in every supported format, and text that is hard to preserve."""

import gzip
import json
import os
import warnings

import numpy as np
import pytest

from rembed_keras.data.prepare.corpora import prepare
from rembed_keras.data.prepare.sources import find_source
from rembed_keras.errors import UserError


def read(name, part_bytes=10**6):
    return [pair for part in find_source(name, part_bytes).parts for pair in part.read()]


def decoded(corpus, language):
    tokens = corpus.tokens(language, 0, corpus.num_tokens[language])
    documents = np.split(tokens, np.flatnonzero(tokens == corpus.tokenizer.sep_id) + 1)[:-1]
    return [corpus.tokenizer.decode(document) for document in documents]


def json_lines(*documents):
    return "".join(json.dumps(document) + "\n" for document in documents)


def test_json_lines_name_their_language_or_stand_in_its_folder(tmp_path):
    (tmp_path / "de").mkdir()
    (tmp_path / "de" / "0001.jsonl").write_text(json_lines({"text": "eins\n\n zwei "}, {"text": "two", "lang": " en "}))
    (tmp_path / "de" / "0002.jsonl.gz").write_bytes(gzip.compress(json_lines({"text": "drei"}).encode()))
    (tmp_path / "fr.web.jsonl").write_text(json_lines({"text": "un", "language": None}, {"text": "", "id": 3}))
    assert read(tmp_path) == [("de", "eins"), ("de", "zwei"), ("en", "two"), ("de", "drei"), ("fr", "un")]
    for part_bytes in range(1, 90, 7):
        source = find_source(tmp_path, part_bytes)
        assert read(tmp_path, part_bytes) == read(tmp_path)
        assert len({part.name for part in source.parts}) == len(source.parts)
    assert sorted(find_source(tmp_path, 9).files) == ["de/0001.jsonl", "de/0002.jsonl.gz", "fr.web.jsonl"]


def test_languages_of_a_folder_can_be_chosen(corpus, text_dir, tmp_path):
    (tmp_path / "all.jsonl").write_text(json_lines(*({"text": each, "lang": each} for each in ("de", "en", "fr"))))
    assert [*find_source(tmp_path, 1000, ["fr", "de"]).parts[0].read()] == [("de", "de"), ("fr", "fr")]
    chosen = prepare(text_dir, tmp_path / "out", tokenizer=corpus.tokenizer.path, languages=["de"])
    assert chosen.languages == ["de"] and [*chosen.manifest["sources"]] == ["de"]
    tokenizer, twice = corpus.tokenizer.path, ["de", "de"]
    assert prepare(text_dir, tmp_path / "out", tokenizer=tokenizer, languages=twice).path == chosen.path
    np.testing.assert_array_equal(
        chosen.tokens("de", 0, chosen.num_tokens["de"]), corpus.tokens("de", 0, corpus.num_tokens["de"])
    )
    with pytest.raises(UserError, match="corpus of other text or settings"):
        prepare(text_dir, tmp_path / "out", tokenizer=corpus.tokenizer.path)


@pytest.mark.parametrize(
    ("source", "languages", "said"),
    [
        ("text", ["xx"], "has no text in 'xx'; it has "),
        ("text", [], "no language is chosen"),
        ("documents", ["xx"], "has no text of 'xx'"),
        ("tfds:wiki40b/de:1.3.0", ["de"], "name the data sets"),
    ],
)
def test_languages_that_cannot_be_chosen_are_refused(source, languages, said, corpus, text_dir, tmp_path):
    (tmp_path / "documents").mkdir()
    (tmp_path / "documents" / "de.jsonl").write_text(json_lines({"text": "eins"}))
    places = {"text": text_dir, "documents": tmp_path / "documents"}
    with pytest.raises(UserError, match=said):
        prepare(places.get(source, source), tmp_path / "out", tokenizer=corpus.tokenizer.path, languages=languages)
    assert not (tmp_path / "out").exists()


BLOCKS = (
    '<doc id="1" url="x" title="A &amp; B">\nA &amp; B\n\nText &lt;b&gt;.\nMore.\n</doc>\n<doc id="2">\nC\n</doc>\n'
)


def test_both_formats_of_wikiextractor_are_read(tmp_path):
    for language, place, text in (
        ("de", "AA/wiki_01", BLOCKS),
        ("de", "AA/wiki_00", json_lines({"id": "7", "title": "T", "text": "Eins.\nZwei."})),
        ("de", "AB/wiki_00", BLOCKS.replace("More", "Mehr")),
        ("en", "AA/wiki_00", BLOCKS),
    ):
        (tmp_path / language / place).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / language / place).write_text(text, encoding="utf-8")
    block = ["A & B", "Text <b>.", "More.", "C"]
    german = ["Eins.", "Zwei.", *block, *block[:2], "Mehr.", "C"]
    assert read(tmp_path) == [("de", line) for line in german] + [("en", line) for line in block]
    assert read(tmp_path / "de") == [("de", line) for line in german]
    assert [part.name for part in find_source(tmp_path, 10**6).parts] == ["de", "en"]


def test_languages_that_share_a_file_are_kept_apart(corpus, text_dir, tmp_path):
    """The same text, its languages shuffled together in JSON lines, gives the same streams."""
    texts = {language: (text_dir / f"{language}.txt").read_text(encoding="utf-8") for language in ("de", "en", "ja")}
    lines = {language: text.splitlines() for language, text in texts.items()}
    mixed = [
        {"text": lines[language][i], "language": language}
        for i in range(600)
        for language in lines
        if i < len(lines[language])
    ]
    (tmp_path / "text").mkdir()
    (tmp_path / "text" / "all.jsonl").write_text(json_lines(*mixed), encoding="utf-8")
    made = prepare(tmp_path / "text", tmp_path / "out", tokenizer=corpus.tokenizer.path, shard_megabytes=0.05)
    files = [{shard["file"] for shard in made.manifest["languages"][language]["shards"]} for language in lines]
    assert len(files[0]) > 2 and files[0] & files[1] & files[2]
    for language in lines:
        size = corpus.num_tokens[language]
        assert made.num_tokens[language] == size
        np.testing.assert_array_equal(made.tokens(language, 0, size), corpus.tokens(language, 0, size))
        np.testing.assert_array_equal(made.unigram_counts(language), corpus.unigram_counts(language))


MISTAKES = {
    "no JSON": ({"de.jsonl": '{"text": "a"}\n{"text": '}, r"de\.jsonl, line 2 is not a JSON document"),
    "no text": (
        {"de.jsonl": '{"txt": "a"}'},
        r'line 1 is not a JSON document: it must be an object with a string "text"',
    ),
    "a language": ({"de.jsonl": '{"text": "a", "lang": 5}'}, "its language is 5, which is not a name"),
    "a nested document": ({"de.jsonl": "[" * 100_000}, "line 1 is not a JSON document: it is nested too deeply"),
    "half a language": (
        {"de.jsonl": '{"text": "a", "lang": "\\ud800x"}'},
        r"its language is '\\ud800x', which is not a name",
    ),
    "two forms": ({"de.jsonl": '{"text": "a"}', "en.txt": "b"}, "keep text of one format in a folder"),
    "files and folders": (
        {"en.txt": "b", "de/0001.txt.gz": "", "de/.0.txt": "", ".de/0001.txt": "", "vocab/vocab.txt": ""},
        r"has text in en.txt and in de/0001\.txt\.gz, which would be left out: make one file of each language",
    ),
    "folders below folders": ({"en.txt": "b", "de/news/1.txt": ""}, r"has text in en.txt and in de/news/1\.txt, which"),
    "folders alone": ({"de/1.txt": "a", "vocab/vocab.txt": ""}, r"text in de/1\.txt: make one file of each language, "),
    "extracts and text": ({"de/AA/wiki_00": "a", "en.txt": "b"}, "WikiExtractor's output and en.txt: keep text of one"),
    "extracts and text in folders": ({"de/AA/wiki_00": "a", "en/1.txt.gz": "b"}, "WikiExtractor's output and en/1.txt"),
    "packed text": ({"de.txt.bz2": "a", "en.txt": "b"}, "has de.txt.bz2, which is not read and would be left out"),
    "capitals": ({"de.TXT": "a", "en.txt": "b"}, "has de.TXT, which is not read"),
    "packed folders": ({"de/news/1.txt.xz": "a", "en.txt": "b"}, "has de/news/1.txt.xz, which is not read"),
    "packed documents": ({"de/2.jsonl.zst": "a", "de/1.jsonl": '{"text": "a"}'}, "has de/2.jsonl.zst, which"),
    "packed extracts": ({"de/AA/wiki_00": "a", "de/AA/wiki_01.bz2": "b"}, "has de/AA/wiki_01.bz2, which"),
    "empty": ({"de.jsonl": ""}, "has no text"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistakes_are_reported_in_one_line_and_leave_nothing(mistake, corpus, tmp_path):
    files, message = MISTAKES[mistake]
    (tmp_path / "text").mkdir()
    for name, text in files.items():
        (tmp_path / "text" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "text" / name).write_text(text, encoding="utf-8")
    with pytest.raises(UserError, match=message) as caught:
        prepare(tmp_path / "text", tmp_path / "out", tokenizer=corpus.tokenizer.path)
    assert "\n" not in str(caught.value)
    assert [path.name for path in tmp_path.iterdir()] == ["text"]


def test_languages_that_are_named_are_read_beside_folders_of_others(tmp_path):
    for name in ("en.txt", "de/0001.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("a\n")
    assert [*find_source(tmp_path, 10**6, ["en"]).files] == ["en"]
    with pytest.raises(UserError, match=r"text in en.txt and in de/0001.txt, .*: make one file of each language$"):
        find_source(tmp_path, 10**6, ["en", "de"])


def test_a_packed_copy_of_what_is_read_and_text_of_other_languages_may_stand_beside_it(tmp_path):
    for name in ("en.txt", "en.txt.bz2", "README.md", "de.txt.xz", "en/vocab.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("a\n")
    assert [*find_source(tmp_path, 10**6, ["en"]).files] == ["en"]
    with pytest.raises(UserError, match=r"de\.txt\.xz, which is not read"):
        find_source(tmp_path, 10**6)


def test_folders_that_are_links_are_read_and_hidden_ones_are_not(tmp_path):
    text = tmp_path / "text"
    for folder, name in ((text / "en", "1"), (tmp_path / "elsewhere", "2"), (text / ".ipynb_checkpoints", "3")):
        folder.mkdir(parents=True)
        (folder / f"{name}.jsonl").write_text(json_lines({"text": name}))
    (text / "de").symlink_to(tmp_path / "elsewhere")
    (text / "en" / "again").symlink_to(text)  # without end
    assert read(text) == [("de", "2"), ("en", "1")]


@pytest.mark.parametrize("name", [b"\xff.txt", b"\xff.jsonl"])
def test_a_file_whose_name_is_not_utf_8_is_refused_and_leaves_nothing(name, corpus, tmp_path):
    (tmp_path / "text").mkdir()
    (tmp_path / "text" / os.fsdecode(name)).write_text('{"text": "a"}')
    with pytest.raises(UserError, match=r"has a file whose name, '\\udcff\..*', is not UTF-8: rename it"):
        prepare(tmp_path / "text", tmp_path / "out", tokenizer=corpus.tokenizer.path)
    assert [path.name for path in tmp_path.iterdir()] == ["text"]


def test_a_file_named_as_the_shard_of_another_is_refused(corpus, tmp_path):
    (tmp_path / "text").mkdir()
    for name in ("en.txt", "en.shard.txt"):
        (tmp_path / "text" / name).write_text("a\n")
    with pytest.raises(UserError, match=r"en\.shard and en .* rename one of the text files"):
        prepare(tmp_path / "text", tmp_path / "out", tokenizer=corpus.tokenizer.path)
    assert [path.name for path in tmp_path.iterdir()] == ["text"]


@pytest.mark.slow
def test_a_data_set_is_read_by_name_and_version(corpus, tmp_path):
    """A data set made here: two languages, one of them in two shards, with the markers of wiki40b."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        pytest.importorskip("importlib_resources", reason="the library needs it to write")
        library = pytest.importorskip(
            "tensorflow_datasets", reason="needs the extra: pip install 'rembed-keras[tasks]'"
        )

        class TinyWiki(library.core.GeneratorBasedBuilder, skip_registration=True):
            VERSION = library.core.Version("1.2.3")
            BUILDER_CONFIGS = [library.core.BuilderConfig(name=name) for name in ("de", "en")]

            def _info(self):
                return self.dataset_info_from_configs(
                    features=library.features.FeaturesDict({"text": library.features.Text()})
                )

            def _split_generators(self, dl_manager):
                return {"train": self._generate_examples(), "test": ((i, {"text": "held out"}) for i in range(2))}

            def _generate_examples(self):
                for i in range(9):
                    language = self.builder_config.name
                    yield (
                        i,
                        {"text": f"\n_START_ARTICLE_\nT{i}\n_START_PARAGRAPH_\n{language} {i}_NEWLINE_end \u00e9{i}"},
                    )

        configuration = library.download.DownloadConfig(num_shards=2)
        for name in ("de", "en"):
            builder = TinyWiki(config=name, data_dir=tmp_path / "sets")
            builder.download_and_prepare(download_config=configuration)
        library.core.add_data_dir(tmp_path / "sets")
        source = find_source("tfds:tiny_wiki/en:1.2.3,tiny_wiki/de:1.2.3", 10**6)
        assert [part.language for part in source.parts] == ["de", "de", "en", "en"]
        pairs = [pair for part in source.parts for pair in part.read()]
        assert pairs == [pair for part in source.parts for pair in part.read()]
        numbered = [(name, i) for name in ("de", "en") for i in range(9)]
        expected = {(name, text) for name, i in numbered for text in (f"T{i}", f"{name} {i}", f"end \u00e9{i}")}
        assert set(pairs) == expected and len(pairs) == len(expected)
        made = prepare("tfds:tiny_wiki/de:1.2.3", tmp_path / "out", tokenizer=corpus.tokenizer.path)
        assert made.manifest["sources"] == {"tiny_wiki/de:1.2.3": {"dataset": "tiny_wiki/de/1.2.3"}}
        assert made.manifest["languages"]["de"]["paragraphs"] == 27
        (file, *_) = sorted((tmp_path / "sets/tiny_wiki/de/1.2.3").glob("*-train.tfrecord*"))
        file.write_bytes(file.read_bytes()[:-9])
        with pytest.raises(UserError, match=f"data set in {tmp_path}/sets/tiny_wiki/de/1.2.3: "):
            list(find_source("tfds:tiny_wiki/de:1.2.3", 10**6).parts[0].read())
        with pytest.raises(UserError, match="data set tiny_wiki/de has no version: name one"):
            find_source("tfds:tiny_wiki/de", 1)
        with pytest.raises(UserError, match=r"data set tiny_wiki/fr:1\.2\.3: "):
            find_source("tfds:tiny_wiki/fr:1.2.3", 1)


HARD = [
    "a\0b",
    "\0",
    "x\u200fy\u202eab\u2066z\u2069",
    "\U0001f468\u200d\U0001f469\u200d\U0001f467\u200d\U0001f466 \U0001f3f4\U000e0067\U000e0062\U000e007f",
    "\ue000\U000f0001",
    "two  spaces\tand a tab",
    "\u00bd \u2163 \ufb01 e\u0301 \u00e9 \u3000 \u00a0 \u00ad \u200b \ufeff \ufffd",
    "\u2028 x\x85y\x1cz",
]


def test_hard_text_comes_back_as_it_was(text_dir, tmp_path):
    """Through JSON, the tokenizer and the shards; but for lone surrogates and SentencePiece's own U+2581."""
    lines = (text_dir / "en.txt").read_text(encoding="utf-8").splitlines()
    long = "0123456789 \u00fc" * 400_000  # 5 MB
    (tmp_path / "text").mkdir()
    escaped = '{"text": "half \\ud800 and pair \\ud83d\\ude00"}\n'
    spaced = {"text": "a\u2581b"}

    def write(last):
        text = json_lines(*({"text": text} for text in [*lines, *HARD, last])) + escaped + json_lines(spaced)
        (tmp_path / "text" / "en.jsonl").write_text(text, encoding="utf-8")

    write(long)
    identity = prepare(tmp_path / "text", tmp_path / "a", 900, byte_fallback=True, normalization="identity")
    came = decoded(identity, "en")
    assert came[-2:] == ["half \ufffd and pair \U0001f600", "a b"]
    assert came[: len(lines)] == [line.strip() for line in lines]
    assert came[len(lines) : -3] == [text.strip() for text in HARD] and came[-3] == long
    assert identity.tokenizer.unk_id not in identity.tokens("en", 0, identity.num_tokens["en"])
    write(long[:100_000])
    usual = decoded(prepare(tmp_path / "text", tmp_path / "b", 900, byte_fallback=True), "en")
    hard = usual[len(lines) : -3]
    assert hard[0:2] == HARD[:2] and hard[3:5] == HARD[3:5]  # NULs, emoji and private use stay
    assert hard[2] == "x y\u202eab\u2066z\u2069" and hard[5] == "two spaces and a tab"  # the usual rule changes these
    with pytest.raises(UserError, match="normalization is 'none'; it must be one of nmt_nfkc"):
        prepare(tmp_path / "text", tmp_path / "c", 900, normalization="none")
