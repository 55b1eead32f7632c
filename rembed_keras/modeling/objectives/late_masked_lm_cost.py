"""What masked language modeling costs in which [MASK] enters late: an encoder that reads less, and a decoder."""

from dataclasses import replace

from rembed_keras.errors import UserError
from rembed_keras.modeling.blocks.positions import longest_row
from rembed_keras.modeling.blocks.stack import (
    block_of,
    has_position_table,
    input_embedding_of,
    shared_entries,
    sublayer_shapes,
)
from rembed_keras.modeling.cost import Config, Entry, Shape
from rembed_keras.modeling.encoder_cost import encoder_entries, layer_works, spared
from rembed_keras.modeling.objectives.masked_lm_cost import head_entries
from rembed_keras.modeling.sizes import check_sequence_length


def late_masked_lm_entries(config: Config, sequence_length: int, mask_rate: float) -> list[Entry]:
    """The ledger's entries of a `LateMaskedLM`; arguments as of `masked_lm_entries`."""
    encoder = config["encoder"]
    decoder = decoder_config(encoder, config.get("decoder_layers", 2))
    if has_position_table(decoder) and not has_position_table(encoder):  # whose rows may be of any length
        check_sequence_length(sequence_length, longest_row(decoder))
    return [
        *encoder_entries(encoder, sequence_length, seen=1 - mask_rate),  # of which the decoder reads all
        _decoder_entry(decoder, sequence_length, mask_rate),
        *_table_entries(decoder),
        *head_entries(config, encoder, mask_rate),
    ]


def decoder_config(encoder: Config, num_layers: int) -> dict:
    """Arguments of a decoder: the encoder's, with so many layers that share nothing.

    Raises:
        UserError: for an encoder that would see, with a token's neighbours, what stands in masked places.
    """
    kind = input_embedding_of(encoder)
    if kind.reads_neighbours:
        name = type(kind).__name__
        raise UserError(f"input embedding {name} reads neighbours, which late masking hides: take MaskedLM")
    plain = {"layer_sharing": "none", "layer_groups": 1, "rematerialize": False}
    decoder = {**encoder, "num_layers": num_layers, **plain}
    if not has_position_table(encoder):  # as where rows tell positions, which what stands in masked places has not
        decoder["input_embedding"] = None
    return decoder


def _decoder_entry(config, length, mask_rate):
    hidden, block = config["hidden_dim"], block_of(config)
    works = layer_works(config, length)
    blocks = sublayer_shapes(config, input_is_normed=False).values()
    outside: list[Shape] = [(hidden,)]  # what stands at masked positions
    if block.norms_first:
        outside += [(hidden,)] * (1 + block.has_biases)  # the last norm
    return Entry(
        f"decoder, {len(works)} blocks",
        (*(shape for shapes in blocks for shape in shapes), *outside),
        round(sum(work.flops for work in works)),
        is_kept=False,
        in_paper=0,
        activations=round(sum(work.activations for work in works)),
        spared=spared(works[-1], mask_rate),
    )


def _table_entries(config):
    """Tables of positions, and of what the layers share."""
    entries = [*shared_entries(config, range(config["num_layers"])).values()]
    if has_position_table(config):
        table = (config.get("max_sequence_length", 512), config["hidden_dim"])
        entries.append(Entry("position embedding", (table,)))
    return [replace(entry, name=f"decoder: {entry.name}", is_kept=False, in_paper=0) for entry in entries]
