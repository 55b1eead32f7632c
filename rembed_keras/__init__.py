"""Pre-train multilingual encoders, and know what every part of them costs.

The names below are found when they are first asked for, so that what needs no framework loads none.
"""

import importlib

__version__ = "0.1.0"

_HOMES = {
    "rembed_keras.analysis": ("ledger",),
    "rembed_keras.data": ("Corpus", "Mixture", "Tokenizer"),
    "rembed_keras.modeling": (
        "Classifier",
        "Encoder",
        "LateMaskedLM",
        "MaskedLM",
        "Regressor",
        "ReplacedTokenDetection",
        "SpanExtractor",
        "Tagger",
    ),
    "rembed_keras.training": ("AdamW", "WarmupLinearDecay"),
}
__all__ = [name for names in _HOMES.values() for name in names]


def __getattr__(name: str):
    for home, names in _HOMES.items():
        if name in names:
            return getattr(importlib.import_module(home), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
