"""The labelled tasks that benchmarks/corpus builds: how they are joined, sampled, split and filtered."""

import importlib
import importlib.util
import io
import json
import random
import sys
import tarfile
import types
import zipfile
from collections import Counter, defaultdict
from pathlib import Path

import pytest

BUILDER = Path(__file__).parents[2] / "benchmarks" / "corpus"
NAMES = ("sources", "labelled", "sections", "intents")


@pytest.fixture(scope="module")
def builder():
    """The builder's modules, which import each other as scripts in one folder."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(BUILDER))
        if importlib.util.find_spec("lxml") is None:  # the HTML parser is not needed here
            package = types.ModuleType("lxml")
            package.etree = package.html = None
            patch.setitem(sys.modules, "lxml", package)
        for name in NAMES:
            patch.delitem(sys.modules, name, raising=False)
        yield types.SimpleNamespace(**{name: importlib.import_module(name) for name in NAMES})
        for name in NAMES:
            del sys.modules[name]


def test_the_manifest_has_both_tasks_and_the_packages_they_are_made_of():
    manifest = json.loads((BUILDER / "manifest.json").read_text())
    files = defaultdict(list)
    for name in manifest["labelled"]:
        _, task, file = name.split("/")
        files[task].append(file)
    assert {task: len(names) for task, names in files.items()} == {"sections": 2 + 16, "intents": 2 + 33}
    assert all({"train.en.tsv", "dev.en.tsv", "test.en.tsv"} <= set(names) for names in files.values())
    assert {"descriptions/binary-amd64_Packages", "npm/cldr-annotations-full-48.2.0.tgz"} <= manifest["packages"].keys()


def test_no_text_is_in_two_splits_or_has_two_labels(builder, monkeypatch):
    monkeypatch.setattr(builder.labelled, "AT_LEAST", 1)
    rows = [
        ("en", "train", "learned", "a"),
        ("en", "train", "Learned", "a"),
        ("en", "train", "both", "a"),
        ("en", "train", "chosen by", "b"),
        ("en", "train", "torn", "a"),
        ("en", "train", "other", "b"),
        ("en", "dev", "chosen by", "b"),
        ("en", "dev", "torn", "b"),
        ("en", "test", "BOTH", "a"),
        ("en", "test", "never read", "c"),
        ("de", "test", "Learned", "a"),
        ("de", "test", "geprüft", "b"),
        ("de", "test", "nie gelernt", "c"),
        ("de", "train", "gelernt", "a"),
    ]
    examples = [builder.labelled.Example(*row) for row in rows]
    texts = {
        name: {example.text for example in found}
        for name, found in builder.labelled.files(examples, whole=False).items()
    }
    assert texts == {
        "train.en": {"learned", "other"},
        "dev.en": {"chosen by"},
        "test.en": {"BOTH"},
        "test.de": {"geprüft"},
    }
    whole = builder.labelled.files(examples, whole=True)["test.de"]
    assert {example.text for example in whole} == {"geprüft", "gelernt"}


def test_test_data_seen_in_pre_training_is_named(builder, tmp_path):
    (tmp_path / "en.txt").write_text("read before\nlearned\n", encoding="utf-8")
    row = builder.labelled.Example("en", "test", "read before", "a")
    made = {"train.en": [row._replace(text="learned")], "test.en": [row, row._replace(text="new")], "test.de": [row]}
    assert builder.labelled.read_before(made, tmp_path) == ["read before"]


def test_a_template_says_what_its_grammar_allows(builder):
    data = {
        "expansion_rules": {"turn": "(turn|switch)"},
        "lists": {
            "state": {"values": [{"in": "on[ now]", "out": 1}, "off"]},
            "volume": {"range": {"from": 1, "to": 2}},
        },
    }
    grammar = builder.intents.Grammar(data, {"name": ["lamp"], "": ["apple"]})

    def said(template):
        rng, part = random.Random(0), builder.intents.parsed(template)
        return {" ".join(grammar.draw(part, rng).split()) for _ in range(300)}

    assert said("<turn> {state} [the] {name}[s]") == {
        " ".join([verb, state, *the, name])
        for verb in ("turn", "switch")
        for state in ("on", "on now", "off")
        for the in ([], ["the"])
        for name in ("lamp", "lamps")
    }
    assert said("({volume:step};more) a|{item}") == {"1 more a", "more 1 a", "2 more a", "more 2 a", "apple"}
    with pytest.raises(ValueError, match="not a template"):
        builder.intents.parsed("turn {name")
    with pytest.raises(ValueError, match="brackets do not match"):
        builder.intents.parsed("turn] on")


def test_commands_are_split_by_template_and_drawn_alike_each_time(builder, tmp_path):
    (tmp_path / "pypi").mkdir()
    (tmp_path / "npm").mkdir()
    templates = [f"way{i} of saying {{name}}" for i in range(10)]
    intents = {f"Do{i:02}": {"data": [{"sentences": templates}]} for i in range(builder.intents.INTENTS)}
    data = {"intents": intents, "lists": {}, "expansion_rules": {}}
    with zipfile.ZipFile(tmp_path / "pypi" / "home_assistant_intents-1-py3-none-any.whl", "w") as wheel:
        wheel.writestr("home_assistant_intents/data/nb.json", json.dumps(data))
        few = data | {"intents": dict(list(intents.items())[1:])}
        wheel.writestr("home_assistant_intents/data/de.json", json.dumps(few))
    names = {"annotations": {"annotations": {sign: {"tts": [f"word {sign}"]} for sign in builder.intents.DEVICES}}}
    content = json.dumps(names).encode()
    with tarfile.open(tmp_path / "npm" / "cldr-annotations-full-1.tgz", "w:gz") as archive:
        for language in ("de", "no"):
            member = tarfile.TarInfo(f"package/annotations/{language}/annotations.json")
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    rows = list(builder.intents.commands(tmp_path))
    assert rows == list(builder.intents.commands(tmp_path))
    assert {row.language for row in rows} == {"nb"}
    assert set(Counter(row.label for row in rows).values()) == {builder.intents.SENTENCES}
    splits = defaultdict(set)
    for row in rows:
        splits[row.text.split()[0]].add(row.split)
    assert Counter(next(iter(found)) for found in splits.values()) == {"train": 7, "test": 2, "dev": 1}
    assert all(len(found) == 1 for found in splits.values())


def test_titles_are_joined_by_checksum_and_siblings_stay_together(builder, tmp_path):
    folder = tmp_path / "descriptions"
    folder.mkdir()
    index = "".join(
        f"Package: {name}\nSource: {source} (1.0)\nSection: {section}\nDescription-md5: {name}1\n\n"
        for name, source, section in [
            *((f"game{i}", "game", "games") for i in range(5)),
            ("libgame", "game", "libs"),
            ("mailer", "mailer", "mail"),
        ]
    )
    (folder / "binary-amd64_Packages").write_text(index)
    stanza = "Package: {0}\nDescription-md5: {0}{1}\nDescription-{2}: {3}\n more\tof it\n\n"
    for code in ("en", "pt_BR"):
        described = [stanza.format(f"game{i}", 1, code, f"Game  {i}") for i in range(5)]
        described += [stanza.format("libgame", 1, code, "Library"), stanza.format("mailer", 0, code, "Older")]
        (folder / f"i18n_Translation-{code}").write_text("".join(described))
    rows = list(builder.sections.titles(tmp_path))
    assert [(row.language, row.text, row.label) for row in rows] == [
        (language, f"Game {i}", "games") for language in ("en", "pt-BR") for i in range(3)
    ]
    paragraphs = builder.sources.package_descriptions(tmp_path)
    held_alike = {row.split for row in paragraphs if row.key[0] != "mailer"} | {row.split for row in rows}
    assert held_alike == {builder.sources.source_split("game")}
