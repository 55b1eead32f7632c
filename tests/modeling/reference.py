"""RemBERT's encoder and head once more, in NumPy and float64: plain sums and loops, to hold the Keras model against."""

import math

import numpy as np

_erf = np.vectorize(math.erf)


def layer_norm(x, gamma, beta, epsilon=1e-12):
    mean, variance = x.mean(-1, keepdims=True), x.var(-1, keepdims=True)
    return (x - mean) / np.sqrt(variance + epsilon) * gamma + beta


def gelu(x):
    return 0.5 * x * (1 + _erf(x / math.sqrt(2)))


def gelu_tanh(x):
    return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def weights_of(model):
    """A model's weights in float64, by path."""
    return {weight.path: np.asarray(weight.numpy(), dtype="float64") for weight in model.weights}


def block(w, name, x, activation):
    """One post-norm block on one document [S, D] without padding."""

    def dense(path, x, equation):
        return np.einsum(equation, x, w[f"{name}/{path}/kernel"]) + w[f"{name}/{path}/bias"]

    query, key, value = (dense(f"attention/heads/{part}", x, "sd,dhk->shk") for part in ("query", "key", "value"))
    scores = np.einsum("qhk,shk->hqs", query, key) / math.sqrt(query.shape[-1])
    scores = np.exp(scores - scores.max(-1, keepdims=True))
    attended = np.einsum("hqs,shk->qhk", scores / scores.sum(-1, keepdims=True), value)
    attended = dense("attention/heads/attention_output", attended, "qhk,hkd->qd")
    x = layer_norm(x + attended, w[f"{name}/attention/norm/gamma"], w[f"{name}/attention/norm/beta"])
    wide = activation(dense("feed_forward/up", x, "sd,df->sf"))
    x = x + dense("feed_forward/down", wide, "sf,fd->sd")
    return layer_norm(x, w[f"{name}/feed_forward/norm/gamma"], w[f"{name}/feed_forward/norm/beta"])


def encode(encoder, token_ids, segment_ids, activation=gelu):
    """Hidden states [L + 1] of [S, D], and the pooled vector [D], of one document."""
    w = weights_of(encoder)
    x = w["embeddings/token/embeddings"][token_ids] + w["embeddings/segment/embeddings"][segment_ids]
    x = x + w["embeddings/position/embeddings"][: len(token_ids)]
    x = layer_norm(x, w["embeddings/norm/gamma"], w["embeddings/norm/beta"])
    states = [x @ w["projection/kernel"] + w["projection/bias"]]
    for i in range(encoder.num_layers):
        states.append(block(w, f"block_{i}", states[-1], activation))
    return states, np.tanh(states[-1][0] @ w["pooler/kernel"] + w["pooler/bias"])


def score(model, hidden, positions):
    """Logits [P, V] of one document's hidden states [S, D]."""
    w = weights_of(model)
    features = gelu(hidden[positions] @ w["head/dense/kernel"] + w["head/dense/bias"])
    features = layer_norm(features, w["head/norm/gamma"], w["head/norm/beta"])
    own = "head/output_embedding/decoupled/table/embeddings"
    table = w[own] if own in w else w["embeddings/token/embeddings"]
    return features @ table.T + w["head/output_embedding/bias"]


def cross_entropy(logits, ids):
    """Nats per row of logits [P, V]."""
    top = logits.max(-1)
    return top + np.log(np.exp(logits - top[:, None]).sum(-1)) - logits[np.arange(len(ids)), ids]
