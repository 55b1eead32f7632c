"""What replaced-token detection costs: the encoder, a generator with its head, and the detector."""

from dataclasses import replace

from rembed_keras.modeling.cost import Config, Entry
from rembed_keras.modeling.generator_sharing.naming import SHARING
from rembed_keras.modeling.objectives.masked_lm_cost import head_entries
from rembed_keras.modeling.sizes import generator_config


def replaced_token_entries(config: Config, sequence_length: int, mask_rate: float) -> list[Entry]:
    """The ledger's entries of a `ReplacedTokenDetection`; arguments as of `masked_lm_entries`."""
    encoder = config["encoder"]
    generator = generator_config(encoder, config.get("generator_layers"), config.get("generator_scale", 0.25))
    sharing = SHARING.kind(config.get("sharing", "embeddings"))
    sharing.check(encoder, generator)
    generator = sharing.arguments(encoder, generator)
    kept, entries = sharing.entries(encoder, generator, sequence_length)
    entries = [*entries, *head_entries(config, generator, mask_rate)]
    hidden = encoder["hidden_dim"]
    detector, detection = ((hidden, hidden), (hidden,)), ((hidden, 1), (1,))
    flops = 2 * hidden * hidden
    frozen = 0 if encoder.get("trainable", True) else 2 * hidden * hidden  # the gradient of what it reads
    return [
        *kept,
        *(replace(entry, name=f"generator: {entry.name}", is_kept=False, in_paper=0) for entry in entries),
        Entry("detector", detector, flops, is_kept=False, in_paper=0, activations=2 * hidden, frozen=frozen),
        Entry("detection", detection, 2 * hidden, is_kept=False, in_paper=0, activations=hidden, dtype="float32"),
    ]
