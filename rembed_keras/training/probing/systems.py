"""The encoders that are measured: after pre-training, before it, and after fine-tuning on a task."""

from collections.abc import Callable
from pathlib import Path

import keras

from rembed_keras.errors import Seed
from rembed_keras.training.initial.encoder_start import EncoderStart
from rembed_keras.training.initial.weights import InitialWeights

PRETRAINED, UNTRAINED, FINETUNED = SYSTEMS = ("pretrained", "untrained", "finetuned")


def encoders_of(
    folder: Path,
    encoder: Callable | None,
    pretrained: str | InitialWeights | None,
    finetuned: str | None,
    seed: Seed,
) -> tuple[EncoderStart, dict[str, keras.Model]]:
    """Encoders by system, and where the pre-trained one is from.

    Args:
        folder: the run's.
        encoder: as in `finetune`.
        pretrained: as in `finetune`.
        finetuned: a task that the run fine-tuned on, by name; None for no such encoder.
        seed: of the weights before pre-training.

    Raises:
        UserError: if there is no pre-trained encoder, or none that was fine-tuned on the task.
    """
    initial = EncoderStart(folder, encoder, pretrained)
    starts = {PRETRAINED: (initial, "pretrained"), UNTRAINED: (initial, "scratch")}
    if finetuned is not None:
        starts[FINETUNED] = (EncoderStart(folder, None, InitialWeights(task=finetuned)), "pretrained")
    encoders = {}
    for system, (where, start) in starts.items():
        keras.utils.set_random_seed(seed)
        encoders[system] = where.fresh()
        where.start(encoders[system], start)
    return initial, encoders
