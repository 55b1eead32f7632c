"""Encoder-free baselines of the tasks of a built corpus, as tables to paste.

    python baselines.py FETCHED OUT        labelled tasks and retrieval; FETCHED and OUT as build.py had them
    python baselines.py FETCHED OUT --in-language     also trained on each language's own text: minutes more

Accuracy of the majority class and of a linear model over pieces of words, both learnt from English; and
precision@1 of bitext retrieval into English by pieces of words alone. Needs the package with its tasks.
"""

import argparse
from collections import defaultdict
from pathlib import Path

import intents
import labelled
import numpy as np
import sections

from rembed_keras.tasks import ParallelText
from rembed_keras.tasks.baselines import majority, tfidf_classifier, tfidf_similarity
from rembed_keras.tasks.retrieval.parallel_text import hits_at_1

READERS = {"sections": sections.titles, "intents": intents.commands}


def read(path: Path) -> tuple[list[str], list[str]]:
    """Texts and labels of a table."""
    rows = [line.split("\t") for line in path.read_text(encoding="utf-8").split("\n")[1:-1]]
    return [text for text, _ in rows], [label for _, label in rows]


def learnt(texts, labels):
    """A linear model, as a function of texts and labels into its accuracy."""
    names = sorted(set(labels))
    linear = tfidf_classifier(texts, np.array([names.index(label) for label in labels]))
    return lambda texts, gold: np.mean(
        [names[i] == right for i, right in zip(linear.predict(texts), gold, strict=True)]
    )


def in_language(examples) -> dict[str, float]:
    """Accuracy by language of a linear model learnt from the language's own train, on its own test."""
    by_language, scores = defaultdict(list), {}
    for example in examples:
        by_language[example.language].append(example)
    for language, found in by_language.items():
        parts = labelled.splits(found)
        train, test = ([list(column) for column in zip(*parts[name], strict=True)][2:] for name in ("train", "test"))
        if len(test[0]) >= labelled.AT_LEAST:
            scores[language] = learnt(*train)(*test)
    return scores


def labelled_table(folder: Path, own: dict[str, float]) -> None:
    """Prints the accuracies of a task, by language."""
    texts, labels = read(folder / "train.en.tsv")
    names = np.array(sorted(set(labels)))
    most = names[majority(np.searchsorted(names, labels), 1)[0]]
    linear = learnt(texts, labels)
    print(f"\n| {folder.name} | n | majority | English tfidf | in-language tfidf |\n|---|---|---|---|---|")
    for path in sorted(folder.glob("test.*.tsv")):
        language, (texts, gold) = path.name.split(".")[1], read(path)
        share, shown = np.mean(np.array(gold) == most), own.get(language)
        last = "" if shown is None else f"{shown:.3f}"
        print(f"| {language} | {len(gold)} | {share:.3f} | {linear(texts, gold):.3f} | {last} |", flush=True)


def retrieval_table(folder: Path) -> None:
    """Prints precision@1 of bitext retrieval, from a language to English and back."""
    text = ParallelText(folder)
    print(f"\n| {folder.name} | n | to English | from English |\n|---|---|---|---|")
    for language in text.languages:
        pairs = text.pairs(language)
        theirs, ours = ([text.lines[name][i] for i in pairs] for name in (language, text.pivot))
        there, back = hits_at_1(tfidf_similarity(theirs, ours))
        print(f"| {language} | {len(pairs)} | {there:.3f} | {back:.3f} |", flush=True)


def main() -> None:
    """Prints all tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("fetched", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--in-language", action="store_true", help="also learn from each language's own text")
    given = parser.parse_args()
    for task, examples in READERS.items():
        own = in_language(examples(given.fetched)) if given.in_language else {}
        labelled_table(given.out / "labelled" / task, own)
    for folder in sorted((given.out / "parallel").iterdir()):
        retrieval_table(folder)


if __name__ == "__main__":
    main()
