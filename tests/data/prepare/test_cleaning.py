"""Cleaning, against brute force."""

import resource
import unicodedata
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from rembed_keras.analysis.prepared import show_prepared
from rembed_keras.data.prepare import survey
from rembed_keras.data.prepare.cleaning import SHINGLE, VERDICTS, Cleaning, band_keys, bands, foreign, knows
from rembed_keras.data.prepare.corpora import prepare
from rembed_keras.data.prepare.sources import find_source
from rembed_keras.errors import UserError

pytest.importorskip("rensa", reason="needs the extra: pip install 'rembed-keras[clean]'")
pytest.importorskip("py3langid", reason="needs the extra: pip install 'rembed-keras[clean]'")

GERMAN = "Die Zeile mit dem Titel steht immer oben auf der Seite und wird beim Drucken wiederholt."


def decoded(corpus, language):
    """The paragraphs of a language, from its tokens."""
    tokens = corpus.tokens(language, 0, corpus.num_tokens[language])
    documents = np.split(tokens, np.flatnonzero(tokens == corpus.tokenizer.sep_id) + 1)[:-1]
    return [corpus.tokenizer.decode(document) for document in documents]


def write(folder, **texts):
    folder.mkdir()
    for language, lines in texts.items():
        (folder / f"{language}.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return folder


def shingles(text):
    text = " ".join(text.casefold().split())
    return {text[i : i + SHINGLE] for i in range(max(1, len(text) - SHINGLE + 1))}


def jaccard(one, other):
    return len(shingles(one) & shingles(other)) / len(shingles(one) | shingles(other))


def test_duplicates_are_dropped_within_a_language_over_all_shards_in_any_order_of_work(
    corpus, text_dir, tmp_path, monkeypatch
):
    lines = (text_dir / "en.txt").read_text(encoding="utf-8").splitlines()
    repeated = [*lines[:200], *lines[50:150], "caf\u00e9 au lait", *lines[190:300], "cafe\u0301 au lait", lines[0]]
    folder = write(tmp_path / "text", en=repeated, de=lines[:60])
    monkeypatch.setattr(survey, "COMPARED", 100)  # in several passes
    cleaning = Cleaning(unicode_form="NFC", deduplicate=True)
    made = prepare(folder, tmp_path / "a", tokenizer=corpus.tokenizer.path, cleaning=cleaning, shard_megabytes=0.003)
    assert len(made.manifest["languages"]["en"]["shards"]) > 3
    first = list(dict.fromkeys(unicodedata.normalize("NFC", line.strip()) for line in repeated))
    clean = prepare(write(tmp_path / "first", en=first, de=lines[:60]), tmp_path / "b", tokenizer=corpus.tokenizer.path)
    for language in ("en", "de"):
        assert made.num_tokens[language] == clean.num_tokens[language]
        size = made.num_tokens[language]
        np.testing.assert_array_equal(made.tokens(language, 0, size), clean.tokens(language, 0, size))
    counted = made.manifest["languages"]["en"]["verdicts"]
    assert counted["kept"] == len(first) == made.manifest["languages"]["en"]["paragraphs"]
    assert counted["kept"] + counted["repeated"] == len(repeated)
    assert made.manifest["settings"]["unicode_form"] == "NFC"
    with pytest.raises(UserError, match="other text or settings"):
        prepare(folder, tmp_path / "a", tokenizer=corpus.tokenizer.path)


def test_more_parts_are_compared_than_files_can_be_open(tmp_path):
    lines = [f"Paragraph {number} of a text that is repeated as a whole." for number in range(60)]
    parts = find_source(write(tmp_path / "text", en=[*lines, *lines]), part_bytes=40).parts
    cleaning = Cleaning(deduplicate=True)
    for part in parts:
        survey.survey(part, tmp_path, cleaning, 40)
    parts = [part for part in parts if survey.totals_of(part, tmp_path)]  # without pieces in which no line begins
    is_open = {int(path.name) for path in Path("/dev/fd").iterdir()}
    most = [number for number in range(10_000) if number not in is_open][30]
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, limits[1]))
    try:
        survey.compare("en", parts, tmp_path, cleaning)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    counts = [survey.count(part, tmp_path, cleaning)["en"] for part in parts]
    assert len(parts) > 100
    assert [sum(count[verdict] for count in counts) for verdict in ("kept", "repeated")] == [60, 60]


def test_near_duplicates_share_a_band_as_often_as_they_should():
    """Pairs of known similarity, against the formula that the split was chosen by."""
    count, rows = bands(0.7)
    rng = np.random.default_rng(0)
    words = [f"{number:05d}" for number in rng.permutation(90_000)[:60_000]]
    for shared, at_least, at_most in ((100, 1.0, 1.0), (90, 0.9, 1.0), (60, 0.0, 0.25)):
        met, similarities = [], []
        for pair in range(60):
            own = words[pair * 200 : pair * 200 + 200]
            one, other = " ".join(own[:100]), " ".join([*own[:shared], *own[100 : 200 - shared]])
            keys = band_keys([one, other], 0.7)
            assert keys.shape == (2, count)
            met.append(bool((keys[0] == keys[1]).any()))
            similarities.append(jaccard(one, other))
        chance = np.mean([1 - (1 - similarity**rows) ** count for similarity in similarities])
        assert np.mean(met) == pytest.approx(chance, abs=0.17)  # 60 draws: over 2.6 standard deviations
        assert at_least <= np.mean(met) <= at_most


def test_near_duplicates_are_dropped_and_other_text_is_kept(corpus, text_dir, tmp_path):
    lines = [line for line in (text_dir / "en.txt").read_text(encoding="utf-8").splitlines() if len(line) > 120]
    unlike = [line for i, line in enumerate(lines[:120]) if all(jaccard(line, other) < 0.3 for other in lines[:i])]
    assert len(unlike) > 20
    near_duplicates = [f"{line} now" for line in unlike]
    folder = write(tmp_path / "text", en=[*unlike, *near_duplicates])
    cleaning = Cleaning(near_duplicates=0.7)
    made = prepare(folder, tmp_path / "out", tokenizer=corpus.tokenizer.path, cleaning=cleaning)
    kept = decoded(made, "en")
    assert len(kept) == made.manifest["languages"]["en"]["verdicts"]["kept"]
    plain = prepare(write(tmp_path / "unlike", en=unlike), tmp_path / "plain", tokenizer=corpus.tokenizer.path)
    assert kept[: len(unlike)] == decoded(plain, "en")
    assert len(kept) <= len(unlike) * 1.05


def test_paragraphs_of_another_language_are_dropped_and_unknown_languages_kept(corpus, text_dir, tmp_path):
    english = [line for line in (text_dir / "en.txt").read_text(encoding="utf-8").splitlines() if len(line) > 80][:40]
    folder = write(tmp_path / "text", **{"en-GB": [*english, GERMAN, "OK"], "tlh": [GERMAN, *english[:2]]})
    cleaning = Cleaning(language_threshold=0.8)
    made = prepare(folder, tmp_path / "out", tokenizer=corpus.tokenizer.path, cleaning=cleaning)
    verdicts = made.verdicts
    assert verdicts["en-GB"]["of another language"] == 1 and verdicts["en-GB"]["kept"] == 41
    assert verdicts["tlh"] == {"kept": 3, "of another language": 0, "repeated": 0, "nearly repeated": 0}
    assert not knows("tlh") and knows("no")
    assert foreign("nb-NO", "Tittelen st\u00e5r alltid \u00f8verst p\u00e5 siden, og den blir skrevet ut igjen.") < 0.5
    assert GERMAN not in decoded(made, "en-GB")


def test_a_language_in_another_script_than_is_known_of_it_is_kept():
    text = "Бүтүн инсанлар ләјагәт вә һүгугларына ҝөрә азад вә бәрабәр доғулурлар."
    assert foreign("az", text) > 0.9 and foreign("az-Cyrl", text) == 0 == foreign("az_cyrl_AZ", text)
    assert foreign("zh-Hant", GERMAN) > 0.9 and foreign("zh-Hans-CN", GERMAN) > 0.9


def test_a_language_without_text_after_cleaning_is_reported(corpus, tmp_path):
    folder = write(tmp_path / "text", en=["The quick brown fox jumps."], ja=[GERMAN])
    with pytest.raises(UserError, match="cleaning leaves no text of ja"):
        prepare(folder, tmp_path / "out", tokenizer=corpus.tokenizer.path, cleaning=Cleaning(language_threshold=0.5))
    assert [path.name for path in tmp_path.iterdir()] == ["text"]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"unicode_form": "NFX"}, "unicode_form is 'NFX'; it must be one of NFC, NFKC"),
        ({"near_duplicates": 1.5}, "near_duplicates is 1.5; it must be greater than 0 and at most 1"),
        ({"language_threshold": 0}, "language_threshold is 0; it must be greater than 0"),
    ],
)
def test_settings_out_of_range_are_named(settings, message):
    with pytest.raises(UserError, match=message):
        Cleaning(**settings)


def test_brackets_of_a_language_are_no_markup(capsys):
    verdicts = {"x[/b]": dict.fromkeys(VERDICTS, 1)}
    counts = {"num_tokens": {"x[/b]": 3}, "num_held_out": {}, "languages": ["x[/b]"], "unknown_shares": {}}
    tokenizer = SimpleNamespace(vocabulary_size=9)
    show_prepared(SimpleNamespace(verdicts=verdicts, tokenizer=tokenizer, manifest={}, **counts), "a", 0, "b")
    assert "x[/b]" in capsys.readouterr().out
