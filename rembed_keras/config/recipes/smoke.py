"""A recipe made so small that it ends in about a minute, to see whether it runs before what it costs is paid.

What costs is known by the names of parameters, which mean the same in every part of this package: the steps of whatever
trains, the examples of whatever is read. So a recipe is bounded that nobody has thought of here, and one that lacks a
knob. The bound is put where the value stands, in a knob if it is one, so that all that use the knob agree; what the
command line gives is left alone.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from rembed_keras.config.backend import replicas_under
from rembed_keras.config.recipes.cautions import listed_pretrainings
from rembed_keras.config.recipes.parse import COMMAND_LINE
from rembed_keras.config.recipes.recipe import ROOT, Recipe
from rembed_keras.config.recipes.signatures import is_ours, signature
from rembed_keras.config.recipes.statements import Binding, Key, Reference
from rembed_keras.config.recipes.uses import Uses

PLACE = "--smoke"
TASKS, EXCERPT, PARALLEL, IN_LANGUAGE = (
    f"rembed_keras.tasks{name}" for name in ("", ".excerpt", ".ParallelText", ".in_language")
)
EXAMPLES = 64  # of each part and language of a task
PIECES = 3000  # that 0.5 MB of text of any languages have
Limit = Callable[[Any], Any]


def _at_most(number: int) -> Limit:
    """None and strings stay; of a schedule every value is bounded, and its steps stay."""

    def limited(value):
        if isinstance(value, dict):
            return {step: limited(each) for step, each in value.items()}
        return min(value, number) if isinstance(value, int | float) else value

    return limited


def _steps_after(ends: Mapping[int, int]) -> Limit:
    """At most 20 steps from where the pre-training before ends now, of those that end at some steps."""

    def limited(value):
        begins = max((now for end, now in ends.items() if isinstance(value, int) and end < value), default=0)
        return _at_most(begins + 20)(value)

    return limited


def _narrow(value):
    """Widths of tables in the order in which they were, equal ones equal: a coupling may need that."""
    return min(value, 128 + value // 32) if isinstance(value, int) else value


def _always(number: float) -> Limit:
    return lambda value: number if value is None else min(value, number)


def _first(value):
    return value[:1] if isinstance(value, list | tuple) else value


def _enough(value):
    """A share that leaves some rows of a short text for evaluation."""
    return max(value, 0.2) if value else value


def _divisor(value):
    """Heads that divide the width of `WIDTHS`, whatever they divided before."""
    return 4 if value >= 4 else 2 if value >= 2 else 1


def _below(value):
    """The bands of a table that has fewer rows now."""
    return type(value)(cutoff for cutoff in value if cutoff < PIECES)


def _depths(kept: int) -> dict[str, Limit]:
    """At most 2 blocks and groups of them; 1 where there are no more than pre-training keeps, which keeps 1 now.

    Args:
        kept: the most blocks that pre-training keeps of more; 0 where it keeps all.
    """

    def blocks(value):
        return min(value, 1 if value <= kept else 2) if isinstance(value, int) else value

    def groups(value):
        return [*value][: blocks(len(value))] if isinstance(value, list | tuple) else min(value, 1 if kept else 2)

    return {"num_layers": blocks, "layer_groups": groups}


def _among(least: int, most: int) -> Limit:
    """Numbers of what there still is, from `least` to `most`; the last one if there is none of them."""
    return lambda value: [each for each in value if least <= each <= most] or [most] if value else value


def _numbered(blocks: int) -> Mapping[str, Limit]:
    """Of methods and terms that know the blocks of an encoder by their number; states are of one that is trained."""
    limits = {"num_layers": _at_most(blocks), "count": _at_most(blocks)}
    return limits | {"layers": _among(-blocks, blocks - 1), "states": _among(0, 2)}


LIMITS: dict[str, Limit] = {
    "warmup_steps": _at_most(5),
    "epochs": _at_most(1),
    "seeds": _first,
    "learning_rates": _first,
    "sequence_length": _at_most(128),
    "checkpoint_every": _at_most(10),
    "keep_checkpoint_every": _at_most(10),
    "log_every": _at_most(5),
    "eval_every": _at_most(10),
    "rows": _at_most(32),
    "held_out": _enough,
    "excerpt_megabytes": _always(0.5),
    "most_lines": _always(EXAMPLES),
    "most": _at_most(EXAMPLES),
}
# of models that are not taken from a folder; those of a group must agree, so one that is given keeps all of them
LAYERS: dict[str, Limit] = {
    "kept_layers": _at_most(1),
    "decoder_layers": _at_most(1),
    "generator_layers": _at_most(2),  # as the encoder, or of a pattern of attention it could lack what knows positions
}
WIDTHS: Mapping[str, Limit] = {"hidden_dim": _at_most(128), "num_heads": _divisor, "head_dim": _at_most(32)}
GROUPED: Mapping[str, Limit] = {"group_size": lambda value: None}  # of a method that pairs features of such a width
TABLES: Mapping[str, Limit] = {"input_embedding_dim": _narrow, "output_embedding_dim": _narrow}
INSIDE: Mapping[str, Limit] = {"intermediate_dim": _at_most(512)}
VOCABULARY: Mapping[str, Limit] = {  # where the run trains its tokenizer
    "vocabulary_size": _at_most(PIECES),
    "input_cutoffs": _below,
    "output_cutoffs": _below,
}
ROWS = 16  # of a batch
MODELS, METHODS = ("rembed_keras.modeling.", "rembed_keras.training."), "rembed_keras.adaptation."
EXCERPTED = ("splits", "texts")  # parameters that are given all examples of a task at once


def smoke(recipe: Recipe) -> list[Binding]:
    """Bounds what costs in a checked recipe, and gives the run a folder of its own beside that of the real one.

    Text, tasks and initial weights must be there as they must for the real run; their first part is read.

    Args:
        recipe: is changed.

    Returns:
        What was bound, each once, but for what takes excerpts.
    """
    smaller = _Smaller(recipe)
    further = _steps_after(smaller.ends())
    smaller.bound(is_ours, LIMITS | {"steps": further, "total_steps": further})
    smaller.bound(is_ours, {"batch_size": _at_most(smaller.rows())})
    for group in smaller.sizes():
        smaller.bound(lambda target: target.startswith(MODELS), group)
        if group is WIDTHS:
            smaller.bound(lambda target: target.startswith(METHODS), GROUPED)
        if LAYERS.keys() <= group.keys():
            smaller.bound(lambda target: target.startswith(METHODS), _numbered(1 if smaller.has("kept_layers") else 2))
    smaller.excerpt()
    smaller.move()
    recipe.check()
    return [each for each in smaller.made.values() if each.target != EXCERPT]


class _Smaller:
    """Bindings that make a recipe smaller, by what they bind."""

    def __init__(self, recipe: Recipe):
        self.recipe = recipe
        self.called = sorted(Uses(recipe.history, ROOT).called())
        self.made: dict[Any, Binding] = {}

    def _bind(self, binding: Binding) -> None:
        self.recipe.add(binding)
        self.made[binding.bound] = binding

    def _binding(self, scope: str, target: str, parameter: str) -> Binding | None:
        """The innermost binding of a parameter."""
        own = [each for each in self.recipe.bindings_of(scope, target) if each.parameter == parameter]
        return own[-1] if own else None

    def _uses(self, is_meant: Callable[[str], bool], names) -> Iterator[tuple[str, str, str]]:
        """Yields (target, scope, parameter) of all that is called and has a parameter of some names."""
        for target, scope in self.called:
            known = signature(target) if is_meant(target) else None
            yield from ((target, scope, name) for name in (known.parameters if known else ()) if name in names)

    def is_given(self, names) -> bool:
        """Whether the command line says one of some parameters."""
        found = (self._binding(scope, target, name) for target, scope, name in self._uses(is_ours, names))
        return any(COMMAND_LINE in (each.place, self.recipe.given(each).place) for each in found if each)

    def bound(self, is_meant: Callable[[str], bool], limits: Mapping[str, Limit]) -> None:
        """Bounds the parameters of what is meant, where they stand; a value that several have, once by each limit."""
        done: set[tuple[Key, Limit]] = set()
        for target, scope, name in self._uses(is_meant, limits):
            binding = self._binding(scope, target, name)
            if binding is None:
                known = signature(target)
                if known is None or name not in known.defaults:
                    continue
                binding = Binding(scope, self._selector(target), target, name, known.defaults[name], PLACE)
            given = self.recipe.given(binding)
            is_done = (given.bound, limits[name]) in done
            if is_done or COMMAND_LINE in (binding.place, given.place) or isinstance(given.value, Reference):
                continue
            done.add((given.bound, limits[name]))
            whole = self.recipe.resolve(given.value) if isinstance(given.value, dict) else given.value  # of knobs in it
            value = limits[name](whole)
            if value != whole:
                self._bind(replace(given, value=value, place=PLACE))

    def ends(self) -> dict[int, int]:
        """The steps at which pre-trainings end that others go on from, each with where it ends now."""
        found: dict[int, int] = {}
        for stage in listed_pretrainings(self.recipe)[:-1]:
            binding = self._binding(stage.scope, stage.target, "steps")
            end = self.recipe.given(binding).value if binding else None
            if binding and isinstance(end, int):
                is_typed = COMMAND_LINE in (binding.place, self.recipe.given(binding).place)
                found[end] = end if is_typed else _steps_after(found)(end)
        return found

    def rows(self) -> int:
        """The most rows of a batch: so many that devices and micro-batches share them."""
        parts = math.lcm(*(each for each in self._values("micro_batches") if isinstance(each, int) and each > 0))
        parts *= replicas_under(self._values("strategy"))
        return parts * max(1, ROWS // parts)

    def has(self, name: str) -> bool:
        """Whether a parameter is bound, to anything but None."""
        return any(each is not None for each in self._values(name))

    def _values(self, name: str) -> list[Any]:
        """What a parameter of whatever is called is bound to."""
        found = (self._binding(scope, target, each) for target, scope, each in self._uses(is_ours, (name,)))
        return [self.recipe.given(each).value for each in found if each]

    def sizes(self) -> Iterator[Mapping[str, Limit]]:
        """Yields the limits of sizes of the model that is pre-trained, where nothing given forbids them."""
        stages = [Reference(scope, "", target, False) for target, scope in self.called]
        named = {each.target.removeprefix("rembed_keras.training."): self.recipe.arguments(each) for each in stages}
        pretrain, prepare = named.get("pretrain", {}), named.get("prepare", {})
        if not isinstance(pretrain.get("encoder"), Reference) or pretrain.get("initial") is not None:
            return
        is_wide = any(isinstance(each, int) and each > 128 for each in self._values("hidden_dim"))
        is_compared = self.has("teacher")  # which stays as wide as it is
        kept = max((each for each in self._values("kept_layers") if isinstance(each, int)), default=0)
        groups = [LAYERS | _depths(kept), TABLES, INSIDE] + [WIDTHS] * (is_wide and not is_compared)
        if prepare and all(each is None for each in (prepare.get("tokenizer"), pretrain.get("corpus"))):
            groups.append(VOCABULARY)
        yield from (group for group in groups if not self.is_given(group))

    def excerpt(self) -> None:
        """Has the first examples of all that is read for a task."""
        name = next((name for name, module in self.recipe.imports.items() if module == TASKS), "rembed_tasks")
        for target, scope in self.called:
            if target in (IN_LANGUAGE, EXCERPT):  # what they give is cut: of one's own excerpt by its `most`
                continue
            for binding in filter(None, (self._binding(scope, target, each) for each in EXCERPTED)):
                given = self.recipe.given(binding)
                if not isinstance(given.value, Reference) or not given.value.is_call:
                    continue
                if COMMAND_LINE in (binding.place, given.place) or given.value.target.startswith((PARALLEL, EXCERPT)):
                    continue
                self.recipe.imports[name] = TASKS
                own, around = f"smoke{len(self.made)}", "" if given.parameter else given.key
                inner = replace(given.value, scope=given.value.scope or around or scope)
                whole = Reference(own, f"{name}.excerpt", EXCERPT, True)
                self._bind(replace(binding, scope=scope, value=whole, place=PLACE))
                for parameter, value in (("splits", inner), ("most", EXAMPLES)):
                    self._bind(Binding(own, whole.selector, EXCERPT, parameter, value, PLACE))

    def move(self) -> None:
        """Gives the run a folder of its own."""
        binding = self._binding("", ROOT, "workdir")
        if binding is None:
            return
        given = self.recipe.given(binding)
        if isinstance(given.value, str) and COMMAND_LINE not in (binding.place, given.place):
            self._bind(replace(given, value=f"{given.value.rstrip('/')}-smoke", place=PLACE))

    def _selector(self, target: str) -> str:
        """How the recipe calls what a dotted path leads to."""
        pairs = self.recipe.imports.items()
        known = [f"{name}{target[len(module) :]}" for name, module in pairs if target.startswith(f"{module}.")]
        return min(known, key=len) if known else target
