"""Hidden states of every layer, measured batch by batch."""

from collections.abc import Callable, Mapping

import numpy as np

from rembed_keras.errors import UserError
from rembed_keras.tasks.kinds.encoding import predict


def measure_layers(
    encoder, inputs: Mapping[str, np.ndarray], batch_size: int, *measures: Callable, chosen: np.ndarray | None = None
) -> list[np.ndarray]:
    """Measures the hidden states of every layer, batch by batch, so that no more than a batch of them is held.

    Args:
        encoder: an `Encoder` of L layers; it is not changed.
        inputs: its inputs, int [N, S].
        batch_size: B, examples at once.
        measures: functions of states [B, S, D] and a mask [B, S], such as `mean_of_tokens`.
        chosen: the mask of the tokens that are measured, [N, S]; the padding mask by default.

    Returns:
        For each measure, float32 [L + 1, N, ...]; the first of L + 1 are the embeddings.

    Raises:
        UserError: for hidden states that are not finite.
    """
    mask = inputs["padding_mask"] if chosen is None else chosen
    measured: list[list] = [[] for _ in measures]
    for begin in range(0, len(inputs["token_ids"]), batch_size):
        batch = {key: value[begin : begin + batch_size] for key, value in inputs.items()}
        states = [np.asarray(each, np.float32) for each in predict(encoder, batch, batch_size)["hidden_states"]]
        for layer, each in enumerate(states):
            if not np.isfinite(each).all():
                raise UserError(f"the encoder's outputs at layer {layer} are not finite: take it in float32")
        for found, measure in zip(measured, measures, strict=True):
            found.append([np.float32(measure(each, mask[begin : begin + batch_size])) for each in states])
    return [np.concatenate(found, axis=1) for found in measured]
