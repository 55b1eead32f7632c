"""What a log reports of the steps since its last row: means, of all predictions and of those of each group.

A prediction whose loss is not finite is left out where the optimizer skips such steps, so that one does not spoil the
means of the others. Other optimizers make weights of NaN of it, and the mean says so, to `TerminateOnNaN` for one.
"""

from collections.abc import Iterable

import keras
from keras import ops

RECORDED = (  # what logs say of each step besides what a model computes
    *("stage", "run", "step", "tokens", "examples", "learning_rate", "grad_norm", "loss_scale", "skipped_steps"),
    *(
        "unigram_entropy",
        "tokens_per_second",
        "seconds_per_step",
        "training_flops_per_second",
        "mfu",
        "peak_memory_bytes",
    ),
)


def numbers(values, weights):
    """Values and their weights as float32, both 0 where a value is not finite.

    >>> [part.tolist() for part in map(ops.convert_to_numpy, numbers(np.array([1.0, np.inf]), np.array([2, 2])))]
    [[1.0, 0.0], [2.0, 0.0]]
    """
    is_number = ops.isfinite(values)
    values, weights = (ops.where(is_number, ops.cast(each, "float32"), 0.0) for each in (values, weights))
    return values, weights


class MeanOfNumbers(keras.metrics.Mean):
    """A weighted mean that leaves out what is not finite; NaN of nothing, where 0 would look like a perfect loss.

    Attributes:
        leaves_out: False for a mean of all that weighs anything, which is not finite then.

    >>> metric = MeanOfNumbers()
    >>> metric.update_state(np.array([1.0, float("nan"), 4.0]), np.array([2.0, 1.0, 1.0]))
    >>> float(metric.result())
    2.0
    """

    leaves_out = True

    def update_state(self, values, sample_weight):
        """Adds values with weights of the same shape."""
        if self.leaves_out:
            return super().update_state(*numbers(values, sample_weight))
        values, weights = (ops.cast(each, "float32") for each in (values, sample_weight))
        return super().update_state(ops.where(weights != 0, values, 0.0), weights)

    def result(self):
        return self.total / self.count


class ListsLogsOnce:
    """A model whose loops give each log once where they give a list; a mixin that stands before the model's class.

    A mean of the model's own can have the name of one of Keras's, or of another objective's, whose place it takes in
    logs. Keras's list would have it twice. And a batch's logs are numbers, of this batch alone: those of Keras 3.10 are
    arrays, of all batches that were before it. Means leave out what the optimizer skips, and nothing else.
    """

    def make_train_function(self, force=False):
        """The model's, with means that suit its optimizer."""
        _suit(self.metrics, self.optimizer)  # type: ignore[attr-defined] # the model's
        return super().make_train_function(force)  # type: ignore[misc] # the model's

    def make_test_function(self, force=False):
        """As `make_train_function`."""
        _suit(self.metrics, self.optimizer)  # type: ignore[attr-defined] # the model's
        return super().make_test_function(force)  # type: ignore[misc] # the model's

    @property
    def metrics_names(self) -> list[str]:
        """Keras's, each once."""
        return [*dict.fromkeys(super().metrics_names)]  # type: ignore[misc] # the model's

    def evaluate(
        self, x=None, y=None, batch_size=None, verbose="auto", sample_weight=None, return_dict=False, **options
    ):
        """The model's; a list has each log once."""
        given = (x, y, batch_size, verbose, sample_weight)
        logs = _numbers(super().evaluate(*given, return_dict=True, **options))  # type: ignore[misc] # the model's
        return logs if return_dict else _listed(self, logs)

    def train_on_batch(self, x=None, y=None, sample_weight=None, class_weight=None, return_dict=False):
        """The model's; a list has each log once."""
        given = (x, y, sample_weight, class_weight)
        self.reset_metrics()  # type: ignore[attr-defined] # the model's
        logs = _numbers(super().train_on_batch(*given, return_dict=True))  # type: ignore[misc] # the model's
        return logs if return_dict else _listed(self, logs)

    def test_on_batch(self, x=None, y=None, sample_weight=None, return_dict=False):
        """The model's; a list has each log once."""
        self.reset_metrics()  # type: ignore[attr-defined] # the model's
        logs = _numbers(super().test_on_batch(x, y, sample_weight, return_dict=True))  # type: ignore[misc] # the model's
        return logs if return_dict else _listed(self, logs)


def _suit(metrics: Iterable, optimizer: object) -> None:
    """Has means leave out what is not finite where the optimizer skips a step of which the gradient is not."""
    for metric in metrics:
        if isinstance(metric, MeanOfNumbers):
            metric.leaves_out = isinstance(optimizer, keras.optimizers.LossScaleOptimizer)


def _numbers(logs):
    """Logs as Keras gives its own; with Keras 3.10 they are arrays, and those that take the place of others tensors."""
    return {name: log if len(getattr(log, "shape", ())) else float(log) for name, log in logs.items()}


def _listed(model, logs):
    """Logs in the order of a model's metrics, then others by name; one alone as it is."""
    names = [each.name for metric in model.metrics for each in getattr(metric, "metrics", [metric])]
    listed = [logs[name] for name in dict.fromkeys([*names, *sorted(logs)]) if name in logs]
    return listed[0] if len(listed) == 1 else listed


class MeanByGroup(keras.metrics.Metric):
    """Weighted means of a value, one a group: for example the loss of each language.

    Args:
        groups: names of the groups; the result is a dict `{"<prefix><group>": mean}`, NaN for a group unseen.
        prefix: what stands before a group's name.
        name: the metric's name.

    >>> metric = MeanByGroup(["de", "en"], prefix="loss/")
    >>> metric.update_state(np.array([1.0, 3.0]), np.array([0, 0]), np.array([1.0, 1.0]))
    >>> float(metric.result()["loss/de"])
    2.0
    """

    def __init__(self, groups, prefix="", name="mean_by_group"):
        super().__init__(name=name)
        self.keys = [f"{prefix}{group}" for group in groups]
        self.total = self.add_weight(shape=(len(self.keys),), initializer="zeros", name="total")
        self.count = self.add_weight(shape=(len(self.keys),), initializer="zeros", name="count")

    def update_state(self, values, group_ids, sample_weight):
        """Adds values [N] with weights [N] to the groups int [N]."""
        size = len(self.keys)
        values, weight = (ops.cast(each, self.dtype) for each in (values, sample_weight))
        self.total.assign_add(ops.segment_sum(values * weight, group_ids, num_segments=size))
        self.count.assign_add(ops.segment_sum(weight, group_ids, num_segments=size))

    def update_rows(self, values, group_ids, sample_weight):
        """Adds values [B, N] with weights [B, N] of rows in groups int [B]."""
        rows = ops.sum(sample_weight, axis=1)
        self.update_state(ops.divide_no_nan(ops.sum(values * sample_weight, axis=1), rows), group_ids, rows)

    def result(self):
        means = self.total / self.count
        return {key: means[i] for i, key in enumerate(self.keys)}
