"""A linear probe of the frozen encoder on a labelled task, while it is pre-trained."""

from typing import TYPE_CHECKING, Any

from rembed_keras.errors import Count, Rate, UserError, check_counts, shortened

if TYPE_CHECKING:  # a recipe is checked without a framework
    from rembed_keras.tasks.kinds.classification import Classification
    from rembed_keras.training.evaluators.evaluator import EvaluationData


class FrozenProbe:
    """What a linear probe finds in the mean of the encoder's outputs over a text's tokens, without heads.

    At every evaluation it is fitted to the task's training examples and asked for all that are scored; the encoder does
    not learn of it. `training.probe` has all layers, after pre-training.

    Gives the task's first metric: `probe/<task>/<language>`, and `probe/<task>`, the mean of all languages but that of
    the training examples, or of that one alone. Beside it `baseline/probe/<task>/<name>` is the same mean of a baseline
    without encoder, such as majority and TF-IDF, which stays as it is.

    Args:
        task: a `Classification`. All of its texts are read at every evaluation: few are enough.
        sequence_length: S, tokens that are read of a text.
        inverse_strength: C of the probe's L2 regularization.

    Raises:
        UserError: for another kind of task, or a strength that is not positive.
    """

    def __init__(self, task: "Classification", sequence_length: Count = 64, inverse_strength: Rate = 1.0):
        check_counts({"sequence_length": sequence_length})
        if not hasattr(task, "labels"):
            raise UserError(f"FrozenProbe takes a Classification, and {shortened(task)} is none")
        if inverse_strength <= 0:
            raise UserError(f"inverse_strength of FrozenProbe is {inverse_strength}; it must be more than 0")
        self.task, self.sequence_length, self.inverse_strength = task, sequence_length, inverse_strength

    def evaluate(self, model, data: "EvaluationData") -> dict[str, float]:
        """The metric by language, and its means.

        Raises:
            UserError: for more tokens than the encoder has positions for, or outputs that are not finite.
        """
        from rembed_keras.analysis.layers import fit_probe
        from rembed_keras.tasks.kinds.encoding import are_finite, predict

        given = data.once(self, lambda: _Given(self, model, data))
        train, *scored = (predict(given.vectors, each.inputs) for each in (given.train, *given.scored.values()))
        if not are_finite([train, *scored]):
            raise UserError(f"the encoder's outputs for {self.task.name} are not finite: take it in float32")
        fitted = fit_probe(train, given.train.targets, inverse_strengths=(self.inverse_strength,))
        found = {}
        for (language, encoded), vectors in zip(given.scored.items(), scored, strict=True):
            answers = self.task.answers(self.task.scored[language], encoded, fitted.logits(vectors))
            found[language] = self.value(language, answers)
        name = f"probe/{self.task.name}"
        return {name: self.mean(found), **{f"{name}/{key}": each for key, each in found.items()}, **given.baselines}

    def value(self, language: str, answers: Any) -> float:
        """The first metric of a language's answers."""
        return float(self.task.score(self.task.scored[language], answers, language)[self.task.metric_names[0]])

    def mean(self, values: dict[str, float]) -> float:
        """The mean over languages, without that of training where there are others."""
        others = [value for language, value in values.items() if language != self.task.train_language]
        return sum(others or values.values()) / len(others or values)


class _Given:
    """What stays the same at all evaluations of a training: texts as ids, the program, and baselines."""

    def __init__(self, probe, model, data):
        import keras

        from rembed_keras.modeling.texts.vectors import mean_token
        from rembed_keras.training.evaluators.evaluator import Forward
        from rembed_keras.training.initial.encoder_start import check_length

        encoder, task, tokenizer = model.encoder, probe.task, data.batches.corpus.tokenizer
        check_length(encoder, probe.sequence_length)

        def encode(examples):
            return task.encode(examples, tokenizer, probe.sequence_length, encoder.arguments["num_segments"])

        self.train = encode(task.splits.train)
        self.scored = {language: encode(examples) for language, examples in task.scored.items()}
        kept = model.drop_heads()
        means = mean_token(kept(kept.input)["sequence_output"], kept.input["padding_mask"])  # [B, S, D] -> [B, D]
        self.vectors = Forward(keras.Model(kept.input, means))
        answered = {
            name: {language: probe.value(language, answer(examples)) for language, examples in task.scored.items()}
            for name, answer in task.baselines().items()
        }
        self.baselines = {f"baseline/probe/{task.name}/{name}": probe.mean(values) for name, values in answered.items()}
