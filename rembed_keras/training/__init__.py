"""The stages of a run, and what they train with."""

from rembed_keras.training.benchmark import benchmark
from rembed_keras.training.budget import Budget, budget
from rembed_keras.training.checkpoints import model_of_run
from rembed_keras.training.divergence import replay
from rembed_keras.training.evaluate import evaluate, tabulate
from rembed_keras.training.finetune import finetune
from rembed_keras.training.optimizers import AdamW, WarmupLinearDecay
from rembed_keras.training.predict import Answerer, lines_of, write_lines
from rembed_keras.training.prepare import prepare
from rembed_keras.training.pretrain import pretrain
from rembed_keras.training.retrieve import retrieve, trace_retrieval
from rembed_keras.training.run import RunRecord, run
from rembed_keras.training.submit import mine, submit

__all__ = [
    "AdamW",
    "Answerer",
    "Budget",
    "RunRecord",
    "WarmupLinearDecay",
    "benchmark",
    "budget",
    "evaluate",
    "finetune",
    "lines_of",
    "mine",
    "model_of_run",
    "prepare",
    "pretrain",
    "replay",
    "retrieve",
    "run",
    "submit",
    "tabulate",
    "trace_retrieval",
    "write_lines",
]
