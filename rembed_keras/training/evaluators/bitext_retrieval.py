"""Bitext retrieval by the encoder that is kept, while it is pre-trained."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rembed_keras.errors import Count, UserError, check_counts

if TYPE_CHECKING:  # a recipe is checked without a framework
    from rembed_keras.tasks.retrieval.parallel_text import ParallelText
    from rembed_keras.training.evaluators.evaluator import EvaluationData


class BitextRetrieval:
    """Bitext retrieval of the encoder, without its heads and the layers that are dropped.

    Gives `retrieval/<text>`, precision@1, the mean of both directions and all languages of the text that the corpus
    has, and `retrieval/<text>/<language>`. Beside it `baseline/retrieval/<text>/tfidf`, and `chance`, are the same mean
    without an encoder, which stays as it is.

    Args:
        texts: the parallel texts.
        sequence_length: S, tokens that are read of a sentence.

    Raises:
        UserError: for no texts, or two of one name.
    """

    def __init__(self, texts: Sequence["ParallelText"], sequence_length: Count = 64):
        check_counts({"sequence_length": sequence_length})
        names = [text.name for text in texts]
        if not names or len({*names}) < len(names):
            raise UserError(f"BitextRetrieval has the texts {names}: it needs one or more, each of a name of its own")
        self.texts, self.sequence_length = texts, sequence_length

    def evaluate(self, model, data: "EvaluationData") -> dict[str, float]:
        """Precision@1 by text, and by text and language.

        Raises:
            UserError: for texts without a language of the corpus, or more tokens than the encoder has positions for.
        """
        from rembed_keras.tasks.retrieval.parallel_text import precisions, sentence_encoder
        from rembed_keras.training.evaluators.evaluator import Forward
        from rembed_keras.training.initial.encoder_start import check_length

        check_length(model.encoder, self.sequence_length)
        corpus = data.batches.corpus
        known = data.once(self, lambda: _without_encoder(self.texts, corpus.languages))
        sentences = data.once(known, lambda: Forward(sentence_encoder(model.drop_heads())))
        scalars = {}
        for text in self.texts:
            found = precisions(sentences, text, corpus.tokenizer, self.sequence_length)
            means = {name: sum(both) / 2 for name, both in found.items() if name in corpus.languages}
            scalars[f"retrieval/{text.name}"] = sum(means.values()) / len(means)
            scalars |= {f"retrieval/{text.name}/{name}": mean for name, mean in means.items()}
        return scalars | known


def _without_encoder(texts, languages) -> dict[str, float]:
    """What baselines find."""
    from rembed_keras.tasks.retrieval.parallel_text import baselines

    known: dict[str, float] = {}
    for text in texts:
        found = [baselines(text, language) for language in text.languages if language in languages]
        if not found:
            raise UserError(f"BitextRetrieval: {text.name} has no language of the corpus beside {text.pivot}")
        for name in found[0]:
            values = [value for each in found for value in each[name]]
            known[f"baseline/retrieval/{text.name}/{name}"] = sum(values) / len(values)
    return known
