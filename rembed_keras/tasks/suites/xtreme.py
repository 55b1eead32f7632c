"""XTREME's nine tasks, as its download script lays them on disk: train in English, test in up to forty languages.

Every function takes the download folder as a whole, since two tasks share SQuAD. The script removes the labels of all
test sets, and Tatoeba's by sorting; a labeled file of the same name is read with its labels. Model selection is on
English development data, and that of other languages is read on request only.

Sources: Hu et al. 2020, "XTREME"; google-research/xtreme, `scripts/download_data.sh` and `evaluate.py`. Of the tasks:
Conneau et al. 2018 (XNLI), Yang et al. 2019 (PAWS-X), Nivre et al. 2018 (Universal Dependencies), Pan et al. 2017
(PAN-X), Artetxe et al. 2020 (XQuAD), Lewis et al. 2020 (MLQA), Clark et al. 2020 (TyDiQA), Zweigenbaum et al. 2018
(BUCC), Artetxe and Schwenk 2019 (Tatoeba).
"""

from collections.abc import Sequence
from pathlib import Path

from rembed_keras.errors import CountOrZero, UserError, check_counts
from rembed_keras.tasks.formats.columns import WordFormat
from rembed_keras.tasks.formats.questions import read_squad
from rembed_keras.tasks.kinds.examples import Splits
from rembed_keras.tasks.retrieval.bitext import BitextSplits
from rembed_keras.tasks.suites.xtreme_files import read_bucc, read_pairs, read_tagged, read_tatoeba

# the languages that a submission is scored in, by the name of a task's folder
LANGUAGES = {
    task: tuple(codes.split())
    for task, codes in {
        "xnli": "ar bg de el en es fr hi ru sw th tr ur vi zh",
        "pawsx": "de en es fr ja ko zh",
        "udpos": "af ar bg de el en es et eu fa fi fr he hi hu id it ja kk ko mr nl pt ru ta te th tl tr ur vi yo zh",
        "panx": "af ar bg bn de el en es et eu fa fi fr he hi hu id it ja jv ka kk ko ml mr ms my nl pt ru sw ta te th "
        "tl tr ur vi yo zh",
        "xquad": "ar de el en es hi ru th tr vi zh",
        "mlqa": "ar de en es hi vi zh",
        "tydiqa": "ar bn en fi id ko ru sw te",
        "bucc2018": "de fr ru zh",
        "tatoeba": "af ar bg bn de el es et eu fa fi fr he hi hu id it ja jv ka kk ko ml mr nl pt ru sw ta te th tl tr "
        "ur vi zh",
    }.items()
}
UPOS = "ADJ ADP ADV AUX CCONJ DET INTJ NOUN NUM PART PRON PROPN PUNCT SCONJ SYM VERB X"
NAMES = "O B-LOC I-LOC B-ORG I-ORG B-PER I-PER"
LABELS = {"xnli": ("contradiction", "entailment", "neutral"), "pawsx": ("0", "1")}
TAGS = {"udpos": tuple(UPOS.split()), "panx": tuple(NAMES.split())}
TYDIQA_NAMES = "arabic bengali english finnish indonesian korean russian swahili telugu"
NO_DEV = {"udpos": ("kk", "th", "tl", "yo")}  # languages without development data
ENGLISH = ("en",)
WORDS = WordFormat(separator="\t")  # words may have spaces, also in files without tags


def xnli(
    folder: str | Path, languages: Sequence[str] | None = None, dev_languages: Sequence[str] | None = ENGLISH
) -> Splits:
    """XNLI: whether a sentence entails another, contradicts it, or neither; trained on MultiNLI.

    Args:
        folder: XTREME's download folder, with `xnli/train-en.tsv`, `dev-<language>.tsv` and `test-<language>.tsv`.
        languages: test languages; all 15 by default.
        dev_languages: development languages; None for all.

    Returns:
        `Labelled` pairs; a label is one of `LABELS["xnli"]`, None in XTREME's test sets.

    Raises:
        UserError: for a missing or malformed file, an unknown label or language, or a label without training data.
    """
    return _by_language(Path(folder) / "xnli", read_pairs, LABELS["xnli"], languages, dev_languages)


def pawsx(
    folder: str | Path, languages: Sequence[str] | None = None, dev_languages: Sequence[str] | None = ENGLISH
) -> Splits:
    """PAWS-X: whether two sentences with high word overlap are paraphrases.

    A few translations are missing: they are empty or "NS". They are kept, as XTREME scores them too.

    Args:
        folder: XTREME's download folder, with `pawsx/train-en.tsv`, `dev-<language>.tsv` and `test-<language>.tsv`.
        languages: test languages; all 7 by default.
        dev_languages: development languages; None for all.

    Returns:
        `Labelled` pairs; a label is "0", or "1" for a paraphrase, None in XTREME's test sets.

    Raises:
        UserError: for a missing or malformed file, an unknown label or language, or a label without training data.
    """
    return _by_language(Path(folder) / "pawsx", read_pairs, LABELS["pawsx"], languages, dev_languages)


def udpos(
    folder: str | Path, languages: Sequence[str] | None = None, dev_languages: Sequence[str] | None = ENGLISH
) -> Splits:
    """UD-POS: part-of-speech tagging on Universal Dependencies 2.5, all treebanks of a language together.

    Args:
        folder: XTREME's download folder, with `udpos/train-en.tsv`, `dev-<language>.tsv` and `test-<language>.tsv`.
        languages: test languages; all 33 by default.
        dev_languages: development languages; None for all but kk, th, tl and yo, which have none.

    Returns:
        `Tagged` sentences; a tag is one of `TAGS["udpos"]`; none in XTREME's test sets.

    Raises:
        UserError: for a missing or malformed file, an unknown tag or language, or a tag without training data.
    """
    return _by_language(Path(folder) / "udpos", read_tagged, TAGS["udpos"], languages, dev_languages, WORDS)


def panx(
    folder: str | Path, languages: Sequence[str] | None = None, dev_languages: Sequence[str] | None = ENGLISH
) -> Splits:
    """PAN-X: named entity recognition of people, places and organisations on WikiAnn.

    Args:
        folder: XTREME's download folder, with `panx/train-en.tsv`, `dev-<language>.tsv` and `test-<language>.tsv`.
        languages: test languages; all 40 by default.
        dev_languages: development languages; None for all.

    Returns:
        `Tagged` sentences; a tag is one of `TAGS["panx"]`; none in XTREME's test sets.

    Raises:
        UserError: for a missing or malformed file, an unknown tag or language, or a tag without training data.
    """
    return _by_language(Path(folder) / "panx", read_tagged, TAGS["panx"], languages, dev_languages, WORDS)


def xquad(folder: str | Path, languages: Sequence[str] | None = None) -> Splits:
    """XQuAD: questions of SQuAD's development data in translation; trained on SQuAD 1.1.

    Development data is all of SQuAD's, as in XTREME; the English test set is a part of it.

    Args:
        folder: XTREME's download folder, with `squad/train-v1.1.json`, `squad/dev-v1.1.json` and
            `xquad/xquad.<language>.json`.
        languages: test languages; all 11 by default.

    Returns:
        `Question`s, without answers in XTREME's test sets.

    Raises:
        UserError: for a missing or malformed file, an unknown language, or an answer that is not at its start in the
            context.
    """
    folder = Path(folder)
    return Splits(
        train=read_squad(_first(folder, "squad/train-v1.1.json")),
        dev={"en": read_squad(_first(folder, "squad/dev-v1.1.json"))},
        test={
            language: read_squad(_first(folder, f"xquad/xquad.{language}.json"), unlabeled=True)
            for language in _chosen("xquad", languages)
        },
    )


def mlqa(
    folder: str | Path, languages: Sequence[str] | None = None, dev_languages: Sequence[str] | None = ENGLISH
) -> Splits:
    """MLQA: questions about passages of Wikipedia, both in one language; trained on SQuAD 1.1.

    Args:
        folder: XTREME's download folder, with `squad/train-v1.1.json` and
            `mlqa/MLQA_V1/{dev,test}/{dev,test}-context-<language>-question-<language>.json`.
        languages: test languages; all 7 by default.
        dev_languages: development languages; None for all.

    Returns:
        `Question`s, without answers in XTREME's test sets.

    Raises:
        UserError: for a missing or malformed file, an unknown language, or an answer that is not at its start in the
            context.
    """
    folder = Path(folder)
    name = "mlqa/MLQA_V1/{0}/{0}-context-{1}-question-{1}.json"
    parts = {
        part: {
            language: read_squad(_first(folder, name.format(part, language)), unlabeled=part == "test")
            for language in _chosen("mlqa", chosen, part)
        }
        for part, chosen in (("dev", dev_languages), ("test", languages))
    }
    return Splits(read_squad(_first(folder, "squad/train-v1.1.json")), parts["dev"], parts["test"])


def tydiqa(folder: str | Path, languages: Sequence[str] | None = None, dev_size: CountOrZero = 0) -> Splits:
    """TyDiQA-GoldP: questions that people asked in their own language; trained on the English part.

    XTREME tests on the development data, so there is none for model selection unless it is held out from training.

    Args:
        folder: XTREME's download folder, with `tydiqa/tydiqa-goldp-v1.1-train/tydiqa-goldp-v1.1-train.json` and
            `tydiqa/tydiqa-goldp-v1.1-dev/tydiqa.goldp.<language>.dev.json`, or with the names that TyDiQA gives them.
        languages: test languages; all 9 by default.
        dev_size: how many of the last training questions are held out as development data. Other questions about their
            passages are dropped.

    Returns:
        `Question`s, without answers in XTREME's test sets.

    Raises:
        UserError: for a missing or malformed file, an unknown language, an answer that is not at its start in the
            context, or development questions that leave none to train on.
    """
    check_counts({"dev_size": dev_size}, "CountOrZero")
    folder = Path(folder) / "tydiqa"
    whole = "tydiqa-goldp-v1.1-{0}/tydiqa-goldp-v1.1-{0}.json", "tydiqa-goldp-v1.1-{0}.json"
    train = read_squad(_first(folder, *(name.format("train") for name in whole)), prefix="english-")
    if dev_size >= len(train):
        raise UserError(f"dev_size is {dev_size}; it must be less than the {len(train)} training questions")
    held_out = train[len(train) - dev_size :]
    passages = {question.context for question in held_out}
    left = [question for question in train if question.context not in passages]
    if not left:
        raise UserError(f"dev_size is {dev_size}; the passages of these questions are those of all: make it smaller")
    spelled = dict(zip(LANGUAGES["tydiqa"], TYDIQA_NAMES.split(), strict=True))
    test = {}
    for language in _chosen("tydiqa", languages):
        name = spelled[language]
        own = f"tydiqa.goldp.{language}.dev.json", f"tydiqa-goldp-dev-{name}.json"
        names = [f"tydiqa-goldp-v1.1-dev/{each}" for each in own] + [each.format("dev") for each in whole]
        path = _first(folder, *names)
        test[language] = read_squad(path, unlabeled=True, prefix=f"{name}-")
    return Splits(
        train=left,
        dev={"en": held_out} if held_out else {},
        test=test,
    )


def bucc(folder: str | Path, languages: Sequence[str] | None = None) -> BitextSplits:
    """BUCC 2018: bitext mining, which sentences of two large corpora are translations of each other; no training.

    Args:
        folder: XTREME's download folder, with `bucc2018/<language>-en.{dev,test}.{<language>,en}`, lines of id and
            sentence, and `.gold`, lines of both ids; the test's is not in XTREME.
        languages: languages other than English; all 4 by default.

    Returns:
        `Bitext`s of development and test by language.

    Raises:
        UserError: for a missing or malformed file, an unknown language, an id that comes twice, or a gold id without a
            sentence.
    """
    folder, chosen = Path(folder) / "bucc2018", _chosen("bucc2018", languages)
    parts = ({language: read_bucc(folder, language, part) for language in chosen} for part in ("dev", "test"))
    return BitextSplits(*parts)


def tatoeba(folder: str | Path, languages: Sequence[str] | None = None) -> BitextSplits:
    """Tatoeba: bitext retrieval, which sentence of another language translates an English one; no training.

    XTREME's script removes the alignment by sorting the English sentences. It is restored where the original files of
    LASER, `tatoeba.<language of three letters>-eng.eng`, are in the folder too. Unsorted English is parallel.

    Args:
        folder: XTREME's download folder, with `tatoeba/<language>-en.<language>` and `<language>-en.en`.
        languages: languages other than English; all 36 by default.

    Returns:
        `Bitext`s of the test by language; ids are line indices, from 0.

    Raises:
        UserError: for a missing or empty file, files of different length, or an unknown language.
    """
    folder = Path(folder) / "tatoeba"
    return BitextSplits(test={language: read_tatoeba(folder, language) for language in _chosen("tatoeba", languages)})


def _by_language(folder, read, classes, languages, dev_languages, form=None):
    train, dev, test = (
        {
            language: read(_first(folder, f"{part}-{language}.tsv"), classes, part)
            for language in _chosen(folder.name, chosen, part)
        }
        for part, chosen in (("train", ENGLISH), ("dev", dev_languages), ("test", languages))
    )
    return Splits(train["en"], dev, test, form)


def _chosen(task, languages, part="test"):
    """The requested languages, or all of a task that have such a part."""
    known = LANGUAGES[task]
    for language in known if languages is None else languages:
        if language not in known:
            raise UserError(f"XTREME's {task} has no language {language!r}, but {' '.join(known)}")
    lacking = NO_DEV.get(task, ()) if part == "dev" else ()
    return [language for language in known if language not in lacking] if languages is None else list(languages)


def _first(folder, *names):
    """The first of several possible files that exists."""
    path = next((folder / name for name in names if (folder / name).is_file()), None)
    if path is None:
        raise UserError(f"{folder / names[0]} is missing; XTREME's scripts/download_data.sh creates it")
    return path
