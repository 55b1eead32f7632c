"""Builds the corpus, or the sample that the package embeds, from what fetch.sh brought.

    python build.py corpus FETCHED OUT     210 MB in 44 languages to pre-train on, and what was held out of it
    python build.py labelled FETCHED OUT   two labelled tasks, into the same folder
    python build.py help FETCHED OUT       LibreOffice's help, whole, to train weights on that are passed on
    python build.py sample FETCHED OUT     the few megabytes of it whose licences allow to pass them on
    python build.py --record ...           writes the checksums of what came out into manifest.json beside this file

Without --record, what comes out is compared with manifest.json, and a package or a file that has changed since is an
error: a corpus that drifts makes old scores incomparable. Needs lxml.
"""

import argparse
import gzip
import hashlib
import json
import re
import sys
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterable
from itertools import chain
from pathlib import Path

import intents
import labelled
import licences
import sections
import sources

MANIFEST = Path(__file__).with_name("manifest.json")
SOURCES = (
    sources.libreoffice,
    sources.package_descriptions,
    sources.manuals,
    sources.handbook,
    sources.installation_guide,
    sources.gnome_help,
    sources.wesnoth,
)
UNSPACED = re.compile(r"[\u0e00-\u0eff\u0f00-\u0fff\u1780-\u17ff\u3040-\u30ff\u4e00-\u9fff\uac00-\ud7af]")
CORPUS_BYTES = 100_000  # of text that a language needs
PARALLEL_LETTERS = range(25, 301)  # of an English sentence that is to be found again
PARALLEL_LINES = 1000
PARALLEL_AT_LEAST = 100  # of them that a language needs
DECLARATION_AT_LEAST = 30  # of the 57 lines of the declaration
TEST_LINES = 500  # of the sample's labelled task, a language

SAMPLE_LANGUAGES = [
    "ca", "cs", "da", "de", "el", "en", "es", "fi", "fr", "hi", "hu", "id", "it", "ja", "km", "ko", "nl", "pl", "pt-BR",
    "ru", "sl", "sv", "tr", "vi", "zh",
]  # fmt: skip
SAMPLE_BYTES = 480_000  # of text a language
SAMPLE_PARALLEL_LINES = 300
TOPICS = {
    "sbasic": "basic",
    "scalc": "calc",
    "schart": "chart",
    "sdatabase": "base",
    "sdraw": "draw",
    "simpress": "impress",
    "smath": "math",
    "swriter": "writer",
}
TOPIC_TRAIN, TOPIC_DEV = 6000, 1000


def letters(text: str) -> int:
    """How many letters a text has."""
    return sum(character.isalpha() for character in text)


def is_prose(text: str) -> bool:
    """Whether a paragraph is long enough to be worth reading."""
    return letters(text) >= (6 if UNSPACED.search(text) else 20)


def training_text(paragraphs: Iterable[sources.Paragraph]) -> dict[str, list[str]]:
    """Paragraphs to train on by language: each once, none that is held out, no English in another language."""
    held, text = defaultdict(set), defaultdict(dict)
    for paragraph in paragraphs:
        if paragraph.language is None or not is_prose(paragraph.text):
            continue
        line = unicodedata.normalize("NFC", paragraph.text)
        if paragraph.split == "train":
            text[paragraph.language].setdefault(line)
        else:
            held[paragraph.language].add(line)
    english = text["en"].keys() | held["en"]
    return {
        language: [line for line in lines if line not in held[language] and (language == "en" or line not in english)]
        for language, lines in text.items()
    }


def parallel_text(paragraphs: Iterable[sources.Paragraph], limit: int) -> dict[str, list[str]]:
    """Held-out lines by language; lines of one number translate one another, and one without translation is empty.

    Only lines that are distinct in their language and differ from English are there to be found.
    """
    by_key = defaultdict(dict)
    for paragraph in paragraphs:
        if paragraph.split == "test" and paragraph.language and paragraph.text:
            by_key[paragraph.language].setdefault(paragraph.key, paragraph.text)
    english = by_key["en"]
    once = {
        language: {text for text, count in Counter(found.values()).items() if count == 1}
        for language, found in by_key.items()
    }
    keys = [key for key, text in english.items() if letters(text) in PARALLEL_LETTERS and text in once["en"]]
    keys = sorted(sorted(keys, key=_shuffled)[:limit])
    lines = {"en": [english[key] for key in keys]}
    for language, found in by_key.items():
        if language != "en":
            known = once[language] - once["en"]
            lines[language] = [text if (text := found.get(key, "")) in known else "" for key in keys]
    return lines


def topics(paragraphs: Iterable[sources.Paragraph], languages: Iterable[str]) -> dict[str, list[tuple[str, str]]]:
    """The labelled task: which application a paragraph of help is about. (text, label) by file name."""
    labelled = defaultdict(dict)
    for paragraph in paragraphs:
        label = TOPICS.get(paragraph.key[0].split("/")[0])
        if label and is_prose(paragraph.text) and paragraph.language in languages:
            labelled[paragraph.language, paragraph.split].setdefault(paragraph.text, (paragraph.key, label))
    seen = labelled["en", "test"].keys() | labelled["en", "dev"].keys()
    test_keys = {key for key, _ in labelled["en", "test"].values()}

    def rows(language, split, limit, keep):
        found = [(key, text, label) for text, (key, label) in labelled[language, split].items() if keep(key, text)]
        found = sorted(found, key=lambda row: _shuffled(row[0]))[:limit]
        return [(text, label) for _, text, label in found]

    files = {
        "train.en": rows("en", "train", TOPIC_TRAIN, lambda key, text: text not in seen),
        "dev.en": rows("en", "dev", TOPIC_DEV, lambda key, text: text not in labelled["en", "test"]),
    }
    for language in languages:
        english = labelled["en", "test"] if language != "en" else {}
        files[f"test.{language}"] = rows(
            language, "test", TEST_LINES, lambda key, text, english=english: key in test_keys and text not in english
        )
    return files


def _shuffled(key):
    return hashlib.sha256(repr(key).encode()).digest()


def write_lines(path: Path, lines: Iterable[str]) -> None:
    """Writes a text file; a name that ends in .gz makes an archive that says nothing of when it was made."""
    path.parent.mkdir(parents=True, exist_ok=True)
    data = "".join(line + "\n" for line in lines).encode("utf-8")
    path.write_bytes(gzip.compress(data, 9, mtime=0) if path.suffix == ".gz" else data)


def write_parallel(folder: Path, lines: dict[str, list[str]], at_least: int) -> None:
    """Writes the languages that have enough of the lines."""
    for language, text in lines.items():
        if sum(map(bool, text)) >= at_least:
            write_lines(folder / f"{language}.txt.gz", text)


def write_declarations(fetched: Path, out: Path) -> None:
    """Writes the declaration of human rights, which no text to train on has."""
    lines = parallel_text(sources.declarations(fetched), PARALLEL_LINES)
    write_parallel(out / "parallel" / "udhr", lines, DECLARATION_AT_LEAST)


def write_labelled(path: Path, rows: Iterable[tuple[str, str]]) -> None:
    """Writes a table of texts and labels."""
    write_lines(path, ["text\tlabel", *(f"{text}\t{label}" for text, label in rows)])


def build_corpus(fetched: Path, out: Path) -> None:
    """Writes text/ to train on, and parallel/ that was held out of it."""
    gathered = {read.__name__: list(read(fetched)) for read in SOURCES}
    for language, lines in training_text(chain.from_iterable(gathered.values())).items():
        if sum(len(line.encode()) for line in lines) >= CORPUS_BYTES:
            write_lines(out / "text" / f"{language}.txt", lines)
    for name in ("libreoffice", "gnome_help", "wesnoth"):
        write_parallel(out / "parallel" / name, parallel_text(gathered[name], PARALLEL_LINES), PARALLEL_AT_LEAST)
    write_declarations(fetched, out)


def build_labelled(fetched: Path, out: Path) -> None:
    """Writes labelled/: titles of packages by section, and sentences by intent; none that is scored may be in text/."""
    tasks = {
        "sections": labelled.files(sections.titles(fetched), whole=False),
        "intents": labelled.files(intents.commands(fetched), whole=True),
    }
    for task, files in tasks.items():
        if leaked := labelled.read_before(files, out / "text"):
            sys.exit(f"{len(leaked)} examples of {task} are lines of {out / 'text'}: {leaked[0]}")
        for name, examples in files.items():
            write_labelled(out / "labelled" / task / f"{name}.tsv", [example[2:] for example in examples])


def build_help(fetched: Path, out: Path) -> None:
    """Writes help/: all help that is not held out, of the one source whose licence lets weights be passed on freely."""
    for language, lines in training_text(sources.libreoffice(fetched)).items():
        if sum(len(line.encode()) for line in lines) >= CORPUS_BYTES:
            write_lines(out / "help" / f"{language}.txt", lines)
    (out / "help" / "LICENSE").write_text(licences.of_help(), encoding="utf-8")


def build_sample(fetched: Path, out: Path) -> None:
    """Writes text/, parallel/ and topics/ of LibreOffice help, and the declarations."""
    help_pages = [row for row in sources.libreoffice(fetched) if row.language in SAMPLE_LANGUAGES]
    # files in one order for all languages, so that they speak of the same things
    ordered = sorted(help_pages, key=lambda row: _shuffled(row.key[0]))
    for language, lines in training_text(ordered).items():
        size, kept = 0, []
        for line in lines:
            size += len(line.encode()) + 1
            if size > SAMPLE_BYTES:
                break
            kept.append(line)
        write_lines(out / "text" / f"{language}.txt.gz", kept)
    write_parallel(out / "parallel" / "help", parallel_text(help_pages, SAMPLE_PARALLEL_LINES), at_least=100)
    for name, rows in topics(help_pages, SAMPLE_LANGUAGES).items():
        write_labelled(out / "topics" / f"{name}.tsv.gz", rows)
    write_declarations(fetched, out)
    of_help = licences.of_help()
    for part in ("text", "parallel/help", "topics"):
        (out / part / "LICENSE").write_text(of_help, encoding="utf-8")
    (out / "parallel/udhr/LICENSE").write_text(licences.of_declarations(fetched), encoding="utf-8")


BUILDS = {  # what makes each, and the folders it makes
    "corpus": (build_corpus, ("text", "parallel")),
    "labelled": (build_labelled, ("labelled",)),
    "help": (build_help, ("help",)),
    "sample": (build_sample, ("text", "parallel", "topics")),
}


def checksums(folder: Path, pattern: str) -> dict[str, str]:
    """SHA-256 of the files of a folder, by name."""
    return {
        path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.glob(pattern))
        if path.is_file()
    }


def drift(expected: dict[str, str], found: dict[str, str]) -> list[str]:
    """Names of what is missing, new or different."""
    return sorted(name for name in expected.keys() | found.keys() if expected.get(name) != found.get(name))


def main() -> int:
    """Builds one of them; exit code 1 if something has drifted."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=BUILDS)
    parser.add_argument("fetched", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--record", action="store_true", help="make manifest.json say what was found")
    given = parser.parse_args()
    manifest = json.loads(MANIFEST.read_text()) if MANIFEST.exists() else {}
    found = {
        "packages": checksums(given.fetched, "debs/*.deb")
        | checksums(given.fetched, "descriptions/*")
        | checksums(given.fetched, "npm/*.tgz")
        | checksums(given.fetched, "pypi/*.whl")
    }
    if not given.record and (changed := drift(manifest["packages"], found["packages"])):
        print(f"{len(changed)} packages are not those of manifest.json: {' '.join(changed[:5])}", file=sys.stderr)
        return 1
    build, parts = BUILDS[given.what]
    build(given.fetched, given.out)
    found[given.what] = {}
    for part in parts:
        found[given.what] |= checksums(given.out, f"{part}/**/*")
    if given.record:
        MANIFEST.write_text(json.dumps(manifest | found, indent=1, sort_keys=True) + "\n")
    elif changed := drift(manifest[given.what], found[given.what]):
        print(f"{len(changed)} files are not those of manifest.json: {' '.join(changed[:5])}", file=sys.stderr)
        return 1
    size = sum((given.out / name).stat().st_size for name in found[given.what])
    print(f"{given.out}: {len(found[given.what])} files as in manifest.json, {size / 1e6:.1f} MB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
