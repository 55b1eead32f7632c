"""What replaced-token detection costs: the encoder, a generator with its head, and the detector."""

from dataclasses import replace

from rembed_keras.modeling.cost import Config, Entry
from rembed_keras.modeling.encoder_cost import embedding_entries, encoder_entries
from rembed_keras.modeling.objectives.masked_lm_cost import head_entries
from rembed_keras.modeling.sizes import generator_config


def replaced_token_entries(config: Config, sequence_length: int, mask_rate: float) -> list[Entry]:
    """The ledger's entries of a `ReplacedTokenDetection`; arguments as of `masked_lm_entries`."""
    encoder = config["encoder"]
    generator = generator_config(encoder, config.get("generator_layers"), config.get("generator_scale", 0.25))
    entries = encoder_entries(generator, sequence_length)
    if config.get("sharing", "embeddings") == "embeddings":  # read once more, but counted as the encoder's
        shared = {entry.name for entry in embedding_entries(generator)} - {"projection"}
        entries = [replace(entry, shapes=()) if entry.name in shared else entry for entry in entries]
        entries = [entry for entry in entries if entry.shapes or entry.flops or entry.activations]
    entries += head_entries(config, generator, mask_rate)
    hidden = encoder["hidden_dim"]
    detector = ((hidden, hidden), (hidden,), (hidden, 1), (1,))
    flops = 2 * hidden * hidden + 2 * hidden
    return [
        *encoder_entries(encoder, sequence_length),
        *(replace(entry, name=f"generator: {entry.name}", is_kept=False, in_paper=0) for entry in entries),
        Entry("detector", detector, flops, is_kept=False, in_paper=0, activations=3 * hidden),
    ]
