"""Models with random weights and biases, which would be initialized with zeros."""

import keras
import numpy as np

from rembed_keras.modeling import Encoder, MaskedLM


def random_model(encoder=None, head=None):
    sizes = {
        "vocabulary_size": 60,
        "num_layers": 3,
        "num_heads": 2,
        "hidden_dim": 16,
        "intermediate_dim": 24,
        "input_embedding_dim": 6,
        "max_sequence_length": 20,
    }
    keras.utils.set_random_seed(2)
    model = MaskedLM(Encoder(**(sizes | (encoder or {}))), **(head or {"output_embedding_dim": 20}))
    rng = np.random.default_rng(1)
    for weight in model.weights:
        weight.assign(weight.numpy() + rng.normal(0, 0.3, weight.shape))
    return model
