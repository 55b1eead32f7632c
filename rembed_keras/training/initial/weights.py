"""What a recipe says of initial weights: where they are, and what of the encoder's structure it changes.

Two changes can be made to a trained encoder without training: layers can be dropped, and a scalar mix of all layers put
on top, whose shares begin where the plain output is. Whatever else differs between the encoder that was trained and
the one of the recipe is refused by name: weights that merely have the right shapes would be taken without a word.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, get_args

import numpy as np

from rembed_keras.errors import Count, UserError, check_counts, shortened
from rembed_keras.modeling.blocks.stack import (
    attention_of,
    block_of,
    cut_arguments,
    has_position_table,
    has_projection,
    input_embedding_of,
    layers_of_cut,
    owners,
)
from rembed_keras.modeling.choices import computed
from rembed_keras.modeling.cost import Config
from rembed_keras.modeling.sizes import KEEP, Dtype, Keep

WhichCheckpoint: TypeAlias = Literal["newest", "best"]

OTHERS_SHARE = 1e-6  # of a scalar mix that begins as the last layer: what all other states have together
DEFAULTS = {  # of an encoder's arguments that say what its weights mean
    "vocabulary_size": None,
    "input_embedding_dim": None,
    "num_segments": 2,
    "hidden_dim": None,
    "num_layers": None,
    "num_heads": None,
    "intermediate_dim": None,
    "activation": "gelu",
    "layer_norm_epsilon": 1e-12,
    "scalar_mix": False,
}
REMEDIES = {
    "vocabulary_size": "`rembed trim` and `rembed extend` change a trained vocabulary",
    "num_layers": "name num_layers of training.InitialWeights to drop layers",
    "scalar_mix": "name scalar_mix of training.InitialWeights to add one",
}


@dataclass(frozen=True)
class Changes:
    """Structural changes of a trained encoder.

    Attributes:
        num_layers: how many of its layers stay; None for all.
        keep: which; see `sizes.layers_to_keep`.
        scalar_mix: whether a scalar mix of all layers that stay is added.
    """

    num_layers: Count | None = None
    keep: Keep = "bottom"
    scalar_mix: bool = False

    @classmethod
    def of(cls, record: Mapping[str, Any]) -> "Changes":
        """The changes that a file records; see `record`.

        Raises:
            UserError: for what are none.
        """
        changes = cls(*(record.get(key, default) for key, default in vars(cls()).items()))
        kept, is_mixed = changes.num_layers, changes.scalar_mix
        if not (kept is None or type(kept) is int) or changes.keep not in [*KEEP] or not isinstance(is_mixed, bool):
            raise UserError(f"{shortened(dict(record))} describes no changes of an encoder")
        return changes

    def record(self) -> dict:
        """The changes, as JSON can say them; nothing if there are none."""
        kept = {} if self.num_layers is None else {"num_layers": self.num_layers, "keep": self.keep}
        return kept | ({"scalar_mix": True} if self.scalar_mix else {})

    def arguments(self, config: Config) -> dict:
        """An encoder's arguments after the changes.

        Raises:
            UserError: for a change that cannot be made.
        """
        cut = cut_arguments(config, layers_of_cut(config, self.num_layers, self.keep))
        if self.scalar_mix and config.get("scalar_mix"):
            raise UserError("the encoder has a scalar mix already: leave scalar_mix of training.InitialWeights out")
        return cut | {"scalar_mix": True} if self.scalar_mix else cut

    def said(self, config: Config) -> list[str]:
        """What is done to an encoder of some arguments, for people to read.

        >>> Changes(2, "symmetric", scalar_mix=True).said({"num_layers": 6})
        ['layers 0, 5 of 6 (symmetric)', 'a scalar mix is added']
        """
        total, kept = config["num_layers"], layers_of_cut(config, self.num_layers, self.keep)
        is_run = kept == [*range(kept[0], kept[-1] + 1)] and len(kept) > 2
        layers = f"{kept[0]}-{kept[-1]}" if is_run else ", ".join(map(str, kept))
        cut = [f"layer{'s' * (len(kept) > 1)} {layers} of {total} ({self.keep})"] if len(kept) < total else []
        return cut + (["a scalar mix is added"] if self.scalar_mix else [])


class InitialWeights:
    """Weights that a stage's encoder starts from, for `pretrain`, `finetune` and all that ask for `pretrained`.

    A recipe that changes nothing names the place alone, `training.pretrain.initial = "runs/quickstart"`.

    Args:
        place: a run; the folder of one of its fine-tuned tasks, of which the model is taken that `evaluate` chose, with
            the lowest seed; the folder of one such model or of a checkpoint; a keras-hub preset; or a Hugging Face
            model. The run itself by default, where a stage comes after another.
        task: one of the fine-tuned tasks of the place, by name.
        num_layers: how many layers of the encoder stay; all by default.
        keep: which layers stay: "bottom", "top", "alternate" or "symmetric"; see `sizes.layers_to_keep`.
        scalar_mix: whether a scalar mix of all layers is put on the encoder, see `layers.scalar_mix`; the last layer
            begins with all but a millionth of its weight.
        checkpoint: of a run, the "newest" or the "best", which `keep_best` of `pretrain` has kept.
        dtype: of an encoder that is made as the one there is, where a stage has no other; its own by default.

    Raises:
        UserError: for a number of layers that is none, layers to keep without their number, an unknown word, or the
            best checkpoint of a fine-tuned task.

    Source: Sajjad et al. 2020 for dropped layers; Phang et al. 2018 for tasks to start from.

    >>> InitialWeights("runs/quickstart", task="topics", num_layers=1).folder
    'runs/quickstart/finetuned/topics'
    """

    def __init__(
        self,
        place: str | None = None,
        task: str | None = None,
        num_layers: Count | None = None,
        keep: Keep = "bottom",
        scalar_mix: bool = False,
        checkpoint: WhichCheckpoint = "newest",
        dtype: Dtype | None = None,
    ):
        if num_layers is not None:
            check_counts({"num_layers of InitialWeights": num_layers})
        if keep not in KEEP:
            raise UserError(f"keep of InitialWeights is {shortened(keep)}; it can be one of {', '.join(KEEP)}")
        if keep != "bottom" and num_layers is None:
            raise UserError(f"keep of InitialWeights is {keep!r}, and all layers stay: name num_layers, how many do")
        if checkpoint not in get_args(WhichCheckpoint):
            named = ", ".join(get_args(WhichCheckpoint))
            raise UserError(f"checkpoint of InitialWeights is {shortened(checkpoint)}; it can be one of {named}")
        if checkpoint == "best" and task is not None:
            raise UserError(
                f"checkpoint of InitialWeights is 'best', which a fine-tuned task has not: task is {task!r}"
            )
        self.place, self.task, self.checkpoint, self.dtype = place, task, checkpoint, dtype
        self.changes = Changes(num_layers, keep, scalar_mix)

    def check_elsewhere(self) -> None:
        """Refuses weights of the run itself, from which pre-training cannot start.

        Raises:
            UserError: if there is no place.
        """
        if self.place is None:
            raise UserError("training.InitialWeights has no place: pre-training cannot start from its own run")

    @property
    def folder(self) -> str | None:
        """The folder that is named; a relative one is the run's own if there is no place; None for the run itself."""
        if self.task is None:
            return self.place
        return "/".join([*filter(None, [self.place]), "finetuned", self.task])


def initial_weights(given: "str | InitialWeights | None") -> InitialWeights:
    """What a stage was given, of which a text is a place."""
    return given if isinstance(given, InitialWeights) else InitialWeights(given)


def check_same(theirs: Config, ours: Config, source: object) -> None:
    """Checks that the weights of one encoder mean the same in another.

    Args:
        theirs: arguments of the one that was trained.
        ours: of the other; those that are left out of either have an encoder's defaults.
        source: where the first is, for messages.

    Raises:
        UserError: naming the first argument that differs.
    """
    here = _meaning(ours)
    for key, value in _meaning(theirs).items():
        if value != here[key]:
            shown = [shortened(_shown(config, key, each)) for config, each in ((theirs, value), (ours, here[key]))]
            remedy = f": {REMEDIES[key]}" if key in REMEDIES else ""
            raise UserError(f"{source}: {key} is {shown[0]} there and {shown[1]} in the recipe's encoder{remedy}")


def mix_values(num_states: int) -> dict[str, np.ndarray]:
    """Values of a `ScalarMix` whose output is the last of its states, but for a millionth, by names of its variables.

    The others' shares are not 0, or no gradient would reach them.
    """
    weight = np.zeros(num_states, "float32")
    weight[-1] = math.log((num_states - 1) / OTHERS_SHARE)
    return {"weight": weight, "scale": np.ones((), "float32")}


def _meaning(config):
    """The arguments on which it depends what an encoder computes with its weights."""
    block, width, heads = block_of(config), config["hidden_dim"], config["num_heads"]
    own = {key: config.get(key, default) for key, default in DEFAULTS.items()}
    own |= {
        "head_dim": config.get("head_dim") or width // heads,
        "block": computed(block),
        "attention": [computed(kind) for kind in attention_of(config)],
        "layer_sharing": [_renumbered(owners(config, each)) for each in ("attention", "feed_forward")],
        "input_cutoffs": [*config.get("input_cutoffs", ())],
        "input_embedding": computed(input_embedding_of(config)),
        "always_project": has_projection(config),
    }
    return own | ({"max_sequence_length": config.get("max_sequence_length", 512)} if has_position_table(config) else {})


def _renumbered(numbers):
    """Numbers of what layers own, in the order in which they come."""
    order = {number: place for place, number in enumerate(dict.fromkeys(numbers))}
    return [order[number] for number in numbers]


def _shown(config, key, value):
    """A value for a message: a part by its class."""
    if key in ("block", "input_embedding"):
        return type({"block": block_of, "input_embedding": input_embedding_of}[key](config)).__name__
    if key == "attention":
        return ", ".join(dict.fromkeys(type(kind).__name__ for kind in attention_of(config)))
    if key == "layer_sharing":
        return f"{config.get(key, 'none')} in groups {config.get('layer_groups', 1)}"
    return value
