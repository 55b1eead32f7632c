"""What an encoder is measured by against the one that it was made of, for `benchmarks.healing`."""

import gzip
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from rembed_keras.tasks import ParallelText

LENGTH = 128  # tokens that are read of a paragraph
TOGETHER = 50  # paragraphs
WORDS = 8  # of a paragraph of which one half can be found by the other


def paragraphs(path: Path) -> list[str]:
    """The paragraphs of a file of the sample."""
    return [line for line in gzip.decompress(path.read_bytes()).decode().splitlines() if line.strip()]


def labelled(path: Path, count: int) -> list[tuple[str, str]]:
    """Texts and labels of the first examples of a file of the sample's task."""
    rows = [line.split("\t") for line in paragraphs(path)]
    text, label = rows[0].index("text"), rows[0].index("label")
    return [(row[text], row[label]) for row in rows[1 : count + 1]]


def halves(lines: list[str]) -> tuple[list[str], list[str]]:
    """Each paragraph's words in two parts, of which one is to find the other among those of all paragraphs.

    It needs no labels and no second language: the inverse cloze task of Lee et al. (2019), with halves for sentences.
    What is shorter than `WORDS` says too little.
    """
    long = [words for words in map(str.split, lines) if len(words) >= WORDS]
    first = [" ".join(words[: len(words) // 2]) for words in long]
    return first, [" ".join(words[len(words) // 2 :]) for words in long]


def precision(pairs: list) -> float:
    """Precision@1 in both directions, the mean over pairs of vectors whose rows belong together."""
    from rembed_keras.tasks.retrieval.parallel_text import precision_at_1

    return float(np.mean([precision_at_1(*pair) for pair in pairs]))


class Yardstick:
    """What an encoder is measured by, against the one that it was made of.

    Args:
        source: the folder of that.
        texts: sentences by name.
        parallel: sentences that are compared too, as "declaration"; those of several languages are to find each other,
            from the pivot's and into them, if it is one of them. Of one language, the halves of each of `texts` are to.
        examples: of the topics, to fit the probe on; a third of them chooses its strength, and as many test it.
    """

    def __init__(self, source: Path, texts: dict[str, list[str]], parallel: "ParallelText", examples: int):
        from rembed_keras.data import sample

        self.parallel = parallel
        self.halves = halves([line for lines in texts.values() for line in lines])
        self.texts = texts | {"declaration": [line for lines in parallel.lines.values() for line in lines if line]}
        folder = sample.topics_folder()
        self.topics = [
            labelled(folder / f"{split}.en.tsv.gz", count)
            for split, count in zip(("train", "dev", "test"), (examples, examples // 3, examples // 3), strict=True)
        ]
        self.labels = sorted({label for rows in self.topics for _, label in rows})
        self.wanted = {name: self.vectors(source, lines) for name, lines in self.texts.items()}

    def vectors(self, folder: Path, lines: list[str]) -> np.ndarray:
        """Means of the last layer's tokens, [CLS] and [SEP] among them, of length 1, [N, D]."""
        import keras

        from rembed_keras.training.initial.places import find
        from rembed_keras.training.loop.restoring import held_in

        place = find(folder)
        held = held_in(place.path)
        encoder = held.fresh()
        held.give(encoder)
        rows = [place.tokenizer.encode(line)[: LENGTH - 2] for line in lines]
        order = sorted(range(len(rows)), key=lambda i: len(rows[i]))
        found = np.zeros((len(rows), encoder.arguments["hidden_dim"]))
        for start in range(0, len(rows), TOGETHER):
            part = order[start : start + TOGETHER]
            ids = np.full((len(part), len(rows[part[-1]]) + 2), place.tokenizer.pad_id, "int32")
            for i, row in enumerate(part):
                ids[i, : len(rows[row]) + 2] = [place.tokenizer.cls_id, *rows[row], place.tokenizer.sep_id]
            mask = (np.arange(ids.shape[1]) < np.array([len(rows[row]) + 2 for row in part])[:, None]).astype("int32")
            states = encoder({"token_ids": ids, "segment_ids": 0 * ids, "padding_mask": mask})["sequence_output"]
            states = keras.ops.convert_to_numpy(states) * mask[:, :, None]
            found[part] = states.sum(axis=1) / mask.sum(axis=1, keepdims=True)
        return found / np.linalg.norm(found, axis=1, keepdims=True)

    def measure(self, folder: Path) -> dict[str, float]:
        """The cosines by text, precision@1 of retrieval where there is something to find, and the probe's accuracy."""
        from rembed_keras.analysis.layers.probing import fit_probe

        vectors = {name: self.vectors(folder, lines) for name, lines in self.texts.items()}
        found = {name: float(np.mean(np.sum(own * self.wanted[name], axis=1))) for name, own in vectors.items()}
        if len(self.parallel.lines) == 1:
            found["retrieval"] = precision([[self.vectors(folder, half) for half in self.halves]])
        elif self.parallel.pivot in self.parallel.lines:
            found["retrieval"] = precision(self.translations(vectors["declaration"]))
        features = [self.vectors(folder, [text for text, _ in rows]) for rows in self.topics]
        labels = [np.array([self.labels.index(label) for _, label in rows]) for rows in self.topics]
        probe = fit_probe(features[0], labels[0], (features[1], labels[1]), inverse_strengths=(0.01, 0.1, 1.0))
        return found | {"topics": probe.accuracy(features[2], labels[2])}

    def translations(self, vectors: np.ndarray) -> list[tuple[np.ndarray, np.ndarray]]:
        """The pivot's vectors and another language's, by language, of the parallel sentences that are there."""
        there = np.array([[bool(line) for line in lines] for lines in self.parallel.lines.values()])
        whole = np.zeros((*there.shape, vectors.shape[1]))  # [languages, lines, D]
        whole[there] = vectors
        own = dict(zip(self.parallel.lines, whole, strict=True))
        pairs = {language: self.parallel.pairs(language) for language in self.parallel.languages}
        return [(own[self.parallel.pivot][rows], own[language][rows]) for language, rows in pairs.items()]
