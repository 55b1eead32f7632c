"""A task of a kind of its own: several labels a text, as "sound|video", each true or false."""

import keras
import numpy as np
from keras import ops

from rembed_keras import Classifier
from rembed_keras.tasks.formats.columns import TextFormat
from rembed_keras.tasks.kinds.encoding import encode_pairs
from rembed_keras.tasks.kinds.task import Task


@keras.saving.register_keras_serializable(package="own_parts")
class MultiLabelClassifier(Classifier):
    """An encoder with a logit for each label [B, labels]; binary cross-entropy."""

    own_metrics = ()  # "accuracy" would be that of one label a text
    symmetric_divergence = None  # there is no one distribution over labels for `RDrop` to compare
    takes_class_weight = False

    def losses_of(self, y, y_pred):
        return ops.mean(ops.binary_crossentropy(y, y_pred, from_logits=True), axis=-1)  # [B, labels] -> [B]


class MultiLabel(Task):
    """Labels of a text or a pair, scored by their F1 over all examples."""

    training_metrics = ()
    format = TextFormat  # of files that `rembed predict` answers

    def __init__(self, name, splits, train_language=None, part="test", labels=None):
        super().__init__(name, splits, {"f1": _f1}, train_language, part)
        self.labels = labels or sorted({label for each in splits.train for label in each.label.split("|")})

    def gold(self, example):
        return None if example.label is None else sorted(example.label.split("|"))

    def make_model(self, encoder, dropout):
        return MultiLabelClassifier(encoder, len(self.labels), dropout)

    def encode(self, examples, tokenizer, sequence_length, num_segments=2):
        rows = [[label in self.gold(each) for label in self.labels] for each in examples if each.label is not None]
        targets = np.array(rows, np.float32) if len(rows) == len(examples) else None
        return encode_pairs(examples, tokenizer, sequence_length, targets, num_segments)

    def answers(self, examples, encoded, outputs):
        return [[label for label, logit in zip(self.labels, row, strict=True) if logit > 0] for row in outputs]

    def description(self):
        return super().description() | {"labels": self.labels}

    def baselines(self):
        return {"all labels": lambda examples: [self.labels] * len(examples)}


def _f1(gold, answers):
    right = sum(len({*truth} & {*guess}) for truth, guess in zip(gold, answers, strict=True))
    return 2 * right / max(1, sum(map(len, gold)) + sum(map(len, answers)))
