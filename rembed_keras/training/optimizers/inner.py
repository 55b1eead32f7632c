"""Which Keras optimizers can be wrapped to train an encoder, and what these are called."""

import keras

from rembed_keras.errors import UserError, shortened

REPLACED = {
    "clipnorm": "clip by the global norm with clip_norm",
    "clipvalue": "clip by the global norm with clip_norm",
    "global_clipnorm": "it would clip the gradient of each replica: set clip_norm",
    "gradient_accumulation_steps": "split batches with the objective's micro_batches",
    "loss_scale_factor": "the loss is scaled by itself in float16",
    "use_ema": "averages of weights are not kept",
}  # settings of Keras's optimizers, and what to do instead


def check_inner(optimizer: object) -> None:
    """Refuses what cannot be wrapped.

    Raises:
        UserError: for what is no Keras optimizer, one that applies gradients in a way of its own, one with settings
            that belong to the wrapper, or one that keeps the state of an optimizer in it to itself.
    """
    if not isinstance(optimizer, keras.optimizers.Optimizer):
        raise UserError(f"{shortened(optimizer)} is no optimizer: bind a class such as @keras.optimizers.AdamW")
    kind = type(optimizer).__name__
    if type(optimizer).apply is not keras.optimizers.Optimizer.apply:
        raise UserError(f"{kind} applies gradients in a way of its own: bind the optimizer that it is made of")
    for setting, remedy in REPLACED.items():
        if getattr(optimizer, setting, None):
            raise UserError(f"{kind}.{setting} is {getattr(optimizer, setting)!r}: {remedy}")
    decay = optimizer.weight_decay
    if getattr(optimizer, "adam_weight_decay", decay) != decay:
        raise UserError(f"{kind} has two decays, {decay} and {optimizer.adam_weight_decay}: bind both alike")
    known = {id(variable) for variable in optimizer.variables}
    for each in held_by(optimizer):
        if any(id(variable) not in known for variable in each.variables):
            raise UserError(
                f"{kind} holds {type(each).__name__}, whose state no checkpoint would have: let its property "
                "`variables` give that optimizer's too"
            )


def held_by(optimizer: keras.optimizers.Optimizer) -> list[keras.optimizers.Optimizer]:
    """The optimizers among an optimizer's attributes, which it may leave updates to, and those among theirs."""
    own = [each for each in vars(optimizer).values() if isinstance(each, keras.optimizers.Optimizer)]
    return [*own, *(inner for each in own for inner in held_by(each))]


def unnumbered(optimizer: keras.optimizers.Optimizer) -> str:
    """An optimizer's name without the number that Keras adds to names of its own for each that a process has made.

    >>> [unnumbered(keras.optimizers.Lion()) for _ in range(2)]
    ['lion', 'lion']
    >>> unnumbered(keras.optimizers.Lion(name="mine_2"))
    'mine_2'
    """
    name, _, number = optimizer.name.rpartition("_")
    is_kerass = number.isdecimal() and name.replace("_", "") == type(optimizer).__name__.lower()
    return name if is_kerass else optimizer.name
