"""What masked language modeling costs: the encoder, and a head that is dropped."""

from rembed_keras.modeling.cost import Config, Entry, table_flops, table_shapes
from rembed_keras.modeling.couplings.naming import COUPLINGS
from rembed_keras.modeling.encoder_cost import encoder_entries
from rembed_keras.modeling.sizes import band_sizes


def masked_lm_entries(config: Config, sequence_length: int, mask_rate: float) -> list[Entry]:
    """The ledger's entries of a `MaskedLM`.

    Args:
        config: the model's arguments, those of its encoder under "encoder".
        sequence_length: S.
        mask_rate: share of the tokens that are predicted.
    """
    encoder = config["encoder"]
    kept_layers, keep = config.get("kept_layers"), config.get("keep", "bottom")
    entries = encoder_entries(encoder, sequence_length, kept_layers, keep, read=mask_rate)  # the head alone reads it
    return [*entries, *head_entries(config, encoder, mask_rate)]


def head_entries(config: Config, encoder: Config, mask_rate: float) -> list[Entry]:
    """The entries of a masked-language-model head.

    Args:
        config: the model's arguments: its `output_embedding_dim`, `coupling` and `output_cutoffs`.
        encoder: arguments of the encoder that the head reads.
        mask_rate: share of the tokens that reach the head.
    """
    vocabulary, hidden, width = encoder["vocabulary_size"], encoder["hidden_dim"], config["output_embedding_dim"]
    coupling, cutoffs = COUPLINGS.kind(config.get("coupling", "decoupled")), config.get("output_cutoffs", ())
    read = encoder["input_embedding_dim"], encoder.get("input_cutoffs", ())
    coupling.check(read[0], width, cutoffs, read[1])
    own, bands = coupling.widths(read[0], width), coupling.bands(cutoffs, read[1])
    sizes = band_sizes(vocabulary, width, bands, name="output_cutoffs" if cutoffs else "input_cutoffs")
    tables = tuple(shape for each in own.values() for shape in table_shapes(vocabulary, each, bands))
    products = sum(2 * rows * wide for rows, wide in sizes)
    scores = round(mask_rate * (table_flops(vocabulary, width, bands) + products))
    is_trained = encoder.get("trainable", True)
    is_frozen = not own and bool(encoder.get("freeze_input_embedding") or not is_trained)
    of_head = round(mask_rate * 2 * hidden * width)
    return [
        Entry(
            "head",
            ((hidden, width), (width,), (width,), (width,)),
            of_head,
            is_kept=False,
            in_paper=0,
            activations=round(mask_rate * (hidden + 3 * width)),  # of its dense layer and norm
            frozen=0 if is_trained else of_head,  # the gradient of what it reads
        ),
        Entry(
            "output embedding" if own else "output bias; table shared",
            (*tables, (vocabulary,)),
            scores,
            is_kept=False,
            in_paper=sum(rows * wide for rows, wide in tables),
            activations=round(mask_rate * vocabulary),  # of the softmax
            frozen=scores * is_frozen,
            tables=len(sizes) * len(own),
        ),
    ]
