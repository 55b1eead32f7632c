"""What replaced-token detection costs: the encoder, a generator with its head, and the detector."""

from dataclasses import replace

from rembed_keras.errors import UserError
from rembed_keras.modeling.blocks.stack import block_of, has_position_table, input_embedding_of
from rembed_keras.modeling.cost import Config, Entry
from rembed_keras.modeling.encoder_cost import encoder_entries
from rembed_keras.modeling.objectives.masked_lm_cost import head_entries
from rembed_keras.modeling.sizes import generator_config


def replaced_token_entries(config: Config, sequence_length: int, mask_rate: float) -> list[Entry]:
    """The ledger's entries of a `ReplacedTokenDetection`; arguments as of `masked_lm_entries`."""
    encoder = config["encoder"]
    generator = generator_config(encoder, config.get("generator_layers"), config.get("generator_scale", 0.25))
    sharing = config.get("sharing", "embeddings")
    check_sharing(sharing, encoder, generator)
    if sharing == "embeddings":
        generator["freeze_input_embedding"] = encoder.get("freeze_input_embedding", False)  # it is the encoder's
    kept, entries = encoder_entries(encoder, sequence_length), encoder_entries(generator, sequence_length)
    kept, entries = SHARED[sharing](kept, entries, _tables_of(encoder))
    entries += head_entries(config, generator, mask_rate)
    hidden = encoder["hidden_dim"]
    detector = ((hidden, hidden), (hidden,), (hidden, 1), (1,))
    flops = 2 * hidden * hidden + 2 * hidden
    return [
        *kept,
        *(replace(entry, name=f"generator: {entry.name}", is_kept=False, in_paper=0) for entry in entries),
        Entry("detector", detector, flops, is_kept=False, in_paper=0, activations=3 * hidden),
    ]


def check_sharing(sharing: str, encoder: Config, generator: Config) -> None:
    """Checks that a generator can share what it is to share with an encoder, from the arguments of both.

    Raises:
        UserError: for an input embedding that gives states of the encoder's width, of which the generator has another.
    """
    kind = input_embedding_of(encoder)
    if sharing == "embeddings" and kind.width(encoder) != kind.width(generator):
        name = type(kind).__name__
        raise UserError(f"input embedding {name} is as wide as its blocks: sharing {sharing!r} needs a scale of 1")


def _tables_of(encoder):
    """Names of the entries of an encoder's input embedding."""
    kind = input_embedding_of(encoder)
    return {entry.name for entry in kind.entries(encoder, block_of(encoder), has_position_table(encoder))}


def _none(kept, entries, tables):
    """Entries of an encoder and of its generator that share nothing."""
    return kept, entries


def _embeddings(kept, entries, tables):
    """As `_none`, of one input embedding, which the generator reads once more: the parameters are the encoder's."""
    entries = [replace(entry, shapes=()) if entry.name in tables else entry for entry in entries]
    return kept, [entry for entry in entries if entry.shapes or entry.flops or entry.activations]


def _gdes(kept, entries, tables):
    """As `_none`, with a table of differences that is trained in place of the encoder's table."""
    table, *others = kept
    difference = replace(table, name="difference of the input embeddings")  # prefixed as what the generator brings
    return [replace(table, is_trained=False), *others], [*entries, difference]


SHARED = {"none": _none, "embeddings": _embeddings, "gdes": _gdes}
