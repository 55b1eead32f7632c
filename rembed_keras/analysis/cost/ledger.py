"""The ledger of a model: what it costs during pre-training, what of it is kept, and what is dropped.

Everything is counted in closed form from the sizes, so a model of any size is counted at once and without
building it; tests compare it with what Keras counts. The paper counts otherwise, leaving out what hardly matters (the
pooler, the head's transform and bias, a projection between equal widths); both counts are given. Source: Chung et al.
2021, tables 1 to 6.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from rembed_keras.analysis.cost.phases import PhaseCost
from rembed_keras.analysis.cost.precision import (
    MIXED,
    name_of,
    remembered_of,
    size_of_number,
    size_of_slot,
    size_of_weights,
    stored_in,
)
from rembed_keras.errors import UserError, did_you_mean
from rembed_keras.modeling.blocks.stack import check_encoder
from rembed_keras.modeling.cost import BACKWARD, Config, Entry, Shape, adam_slots, size_of
from rembed_keras.modeling.encoder_cost import added_entries, encoder_entries
from rembed_keras.modeling.objectives.masked_lm_cost import masked_lm_entries
from rembed_keras.modeling.sizes import check_sizes

MASK_RATE = 0.15
MASKED_LM_ARGUMENTS = (
    *("encoder", "output_embedding_dim", "coupling", "output_cutoffs", "kept_layers", "keep", "loss_chunk"),
    *("micro_batches", "name", "quantized", "quantizers", "frozen"),
)


@dataclass(frozen=True)
class Ledger:
    """The ledger of a model, in parameters, FLOPs and bytes; see `ledger`.

    Attributes:
        entries: the lines.
        sequence_length: S, at which FLOPs were counted.
        slots: numbers that the optimizer remembers of each line's variables, copies of weights in 16 bits among them.
        teachers: the lines of the teachers of loss terms, which are neither kept nor dropped.
        dtype: the encoder's dtype or policy of Keras.
        phases: of a pre-training whose batches or rows change their size, or of several.
        teacher_bytes: of the teachers' weights, each in its own dtype.
    """

    entries: tuple[Entry, ...]
    sequence_length: int
    slots: tuple[int, ...]
    teachers: tuple[Entry, ...] = ()
    dtype: str = "float32"
    phases: tuple[PhaseCost, ...] = ()
    teacher_bytes: int = 0

    @property
    def stored_in(self) -> str:
        """The dtype of weights, which mixed precision keeps in float32."""
        return stored_in(self.dtype)

    @property
    def computed_in(self) -> str:
        """The dtype of activations."""
        return self.dtype.removeprefix(MIXED)

    def _sum(self, field, is_kept=None) -> int:
        return sum(getattr(entry, field) for entry in self.entries if is_kept in (None, entry.is_kept))

    def _columns(self, field, factor=1):
        kept, dropped = factor * self._sum(field, is_kept=True), factor * self._sum(field, is_kept=False)
        return {"kept": kept, "dropped": dropped, "total": kept + dropped}

    def _bytes(self, size, numbers):
        """Bytes of so many numbers of each line, in the size that one has of variables of the line's dtype."""
        sizes = [size(entry.dtype or self.stored_in) * own for entry, own in zip(self.entries, numbers, strict=True)]
        kept = sum(each for entry, each in zip(self.entries, sizes, strict=True) if entry.is_kept)
        return {"kept": kept, "dropped": sum(sizes) - kept, "total": sum(sizes)}

    @property
    def kept(self) -> int:
        """Parameters of the encoder, exactly."""
        return self._sum("parameters", is_kept=True)

    @property
    def dropped(self) -> int:
        """Parameters that exist only during pre-training, exactly."""
        return self._sum("parameters", is_kept=False)

    @property
    def total(self) -> int:
        """Parameters during pre-training."""
        return self.kept + self.dropped

    @property
    def paper_kept(self) -> int:
        """Parameters at fine-tuning as the paper counts them."""
        return self._sum("paper_parameters", is_kept=True)

    @property
    def paper_total(self) -> int:
        """Parameters during pre-training as the paper counts them."""
        return self._sum("paper_parameters")

    @property
    def flops(self) -> dict[str, int]:
        """FLOPs of a forward pass per token of input: "kept", "dropped" and "total"."""
        return self._columns("flops")

    @property
    def training_flops(self) -> dict[str, int]:
        """FLOPs of a step of pre-training per token of input, forward and backward, of what the loss needs.

        What `rematerialize` computes once more to save memory counts once.
        """
        every, spared = self._columns("flops", 1 + BACKWARD), self._columns("spared", 1 + BACKWARD)
        frozen = self._columns("frozen")
        return {name: every[name] - spared[name] - frozen[name] for name in every}

    @property
    def bytes(self) -> dict[str, int]:
        """Bytes of the parameters as they are stored: "kept", "dropped" and "total"."""
        return self._bytes(size_of_number, [entry.parameters for entry in self.entries])

    @property
    def optimizer_bytes(self) -> dict[str, int]:
        """Bytes of the optimizer's slots: "kept", "dropped" and "total"."""
        return self._bytes(size_of_slot, self.slots)

    @property
    def activation_bytes(self) -> dict[str, int]:
        """Bytes that a backward pass needs of the forward pass, per token of input as it is computed; see `parts`."""
        return self._columns("activations", size_of_number(self.computed_in))

    @property
    def activations(self) -> int:
        """Numbers that a backward pass needs of the forward pass, per token of input."""
        return self._sum("activations")

    @property
    def teacher(self) -> dict[str, int]:
        """What the encoders of teachers cost, whose weights are frozen and never saved; nothing of heads they may need.

        Parameters, FLOPs per token of a forward pass, and bytes, of which a teacher may have others than the model.
        """
        parameters = sum(entry.parameters for entry in self.teachers)
        flops = sum(entry.flops for entry in self.teachers)
        return {"parameters": parameters, "flops_per_token": flops, "bytes": self.teacher_bytes}

    def to_json(self) -> dict:
        """All of it as what JSON can say; "teacher" and "phases" where there are some."""
        others: dict = {"teacher": self.teacher} if self.teachers else {}
        others |= {"phases": [phase.to_json() for phase in self.phases]} if self.phases else {}
        return others | {
            "kept": self.kept,
            "dropped": self.dropped,
            "total": self.total,
            "paper_kept": self.paper_kept,
            "paper_total": self.paper_total,
            "flops_per_token": self.flops,
            "training_flops_per_token": self.training_flops,
            "dtype": self.dtype,
            "bytes": self.bytes,
            "optimizer_bytes": self.optimizer_bytes,
            "activation_bytes_per_token": self.activation_bytes,
            "sequence_length": self.sequence_length,
            "parts": {
                entry.name: {"parameters": entry.parameters, "flops_per_token": entry.flops, "kept": entry.is_kept}
                for entry in self.entries
            },
        }

    def table(self):
        """The ledger as a `rich.table.Table`."""
        from rich.table import Table

        shown = Table(title="What is kept and what is dropped")
        for column in ("", "kept", "dropped", "of all", *(["teacher"] if self.teachers else [])):
            shown.add_column(column, justify="left" if not column else "right")
        for entry in self.entries:
            cells = (f"{entry.parameters:,}", "") if entry.is_kept else ("", f"{entry.parameters:,}")
            shown.add_row(entry.name, *cells, f"{entry.parameters / self.total:.1%}")
        shown.add_section()
        teacher = [f"{self.teacher['parameters']:,}"] if self.teachers else []
        shown.add_row("parameters", f"{self.kept:,}", f"{self.dropped:,}", f"{self.total:,}", *teacher)
        paper_dropped = self.paper_total - self.paper_kept
        shown.add_row("  as the paper counts", f"{self.paper_kept:,}", f"{paper_dropped:,}", f"{self.paper_total:,}")
        computed = "" if self.computed_in == "float32" else f" in {self.computed_in}"
        rows = {
            "forward FLOPs per token": self.flops,
            "training FLOPs per token": self.training_flops,
            f"bytes in {self.stored_in}": self.bytes,
            "bytes of the optimizer's slots": self.optimizer_bytes,
            f"activation bytes per token{computed}": self.activation_bytes,
        }
        taught = {}
        if self.teachers:
            taught = {
                "forward FLOPs per token": self.teacher["flops_per_token"],
                f"bytes in {self.stored_in}": self.teacher["bytes"],
            }
        for name, columns in rows.items():
            own = [f"{columns[column]:,}" for column in ("kept", "dropped", "total")]
            shown.add_row(name, *own, *([f"{taught[name]:,}"] if name in taught else []))
        for phase in self.phases:
            steps = f"{phase.steps:,} x {phase.batch_size:,} x {phase.sequence_length:,}"
            shown.add_row(f"training FLOPs, {steps} tokens", "", "", f"{phase.training_flops:,}")
        return shown


def ledger(
    model_or_config: Any,
    sequence_length: int | None = None,
    mask_rate: float = MASK_RATE,
    entries: Callable[[Config, int, float], list[Entry]] | None = None,
    slots: Callable[[Sequence[Entry]], list[tuple[Shape, ...]]] = adam_slots,
    terms: Sequence[Any] = (),
    teachers: Sequence[Config] = (),
) -> Ledger:
    """Counts what a model costs, as its configuration says it: not what `quantize` changes.

    An encoder is trained or frozen as a whole, but for the table of `freeze_input_embedding`: single layers that were
    frozen by hand count as trained. Of a model, adapters and LoRA that were added to its encoder are a line of their
    own; a configuration lacks them.

    Args:
        model_or_config: a `MaskedLM` or a model of another objective, an `Encoder`, or the configuration of one: a dict
            of the encoder's arguments, or of the model's with those under "encoder".
        sequence_length: S at which FLOPs are counted; the longest the encoder takes by default. Every token is taken
            to attend to S tokens, so rows that are packed with short documents are counted too dear, as is done there.
        mask_rate: share of the tokens that reach the head, at its highest where it changes.
        entries: of a configuration, the `ledger_entries` of its objective; `MaskedLM`'s by default.
        slots: shapes of what an optimizer remembers of each entry's variables; Adam's by default.
        terms: loss terms; those of the model by default.
        teachers: arguments of the encoders that teach, with `kept_layers` and `keep` where these are cut; by default
            those of the model and its terms.

    Returns:
        The ledger.

    Raises:
        KeyError: for a configuration that lacks a size.
        UserError: for a size that is none, an argument that a `MaskedLM` does not have where no `entries` are given,
            or a model that does not say what it costs.

    >>> base = {"vocabulary_size": 120_000, "num_layers": 12, "num_heads": 12, "hidden_dim": 768,
    ...         "intermediate_dim": 3072, "input_embedding_dim": 128}
    >>> counted = ledger({"encoder": base, "output_embedding_dim": 768, "coupling": "decoupled"})
    >>> counted.paper_kept // 10**6, counted.paper_total // 10**6
    (100, 192)
    """
    is_model = hasattr(model_or_config, "get_config")
    config = dict(model_or_config.get_config() if is_model else model_or_config)
    if is_model and "encoder" in config:
        entries = getattr(model_or_config, "ledger_entries", None)
        if entries is None:
            raise UserError(f"{type(model_or_config).__name__} does not say what it costs: it has no ledger_entries")
    encoder = config.get("encoder", config)
    encoder = encoder.get("config", encoder)  # as Keras serializes an object
    check_sizes({key: value for key, value in config.items() if key != "encoder"})
    check_encoder(encoder)
    length = sequence_length or encoder.get("max_sequence_length", 512)
    if "encoder" not in config:
        lines = encoder_entries(encoder, length)
    else:
        if entries is None:
            _check_masked_lm(config)
            entries = masked_lm_entries
        lines = entries(config | {"encoder": encoder}, length, mask_rate)
    lines = [*lines, *(added_entries(getattr(model_or_config, "encoder", model_or_config)) if is_model else ())]
    terms = terms or getattr(model_or_config, "terms", ())
    asking = (*terms, model_or_config)
    asked = {id(each): each for one in asking for each in getattr(one, "teachers", ()) if each.is_open}
    teachers = [*teachers, *(each.encoder.get_config() for each in asked.values())]
    read = [encoder_entries(each, length, each.get("kept_layers"), each.get("keep", "bottom")) for each in teachers]
    read = [[line for line in each if line.is_kept] for each in read]
    held = sum(size_of_weights(own, each.get("dtype")) for own, each in zip(read, teachers, strict=True))
    counting = [term for term in terms if hasattr(term, "ledger_entries")]
    lines = [*lines, *(line for term in counting for line in term.ledger_entries(encoder, lines, length))]
    dtype = name_of(encoder.get("dtype"))
    remembered = remembered_of(lines, slots, stored_in(dtype))
    slots_of, taught = tuple(map(size_of, remembered)), tuple(line for each in read for line in each)
    return Ledger(tuple(lines), length, slots_of, taught, dtype, teacher_bytes=held)


def _check_masked_lm(config):
    """Refuses what is no argument of a `MaskedLM`: another objective must not be counted as one."""
    for key in config:
        if key not in MASKED_LM_ARGUMENTS:
            meant = did_you_mean(key, MASKED_LM_ARGUMENTS)
            raise UserError(
                f"{key} is no argument of MaskedLM{meant}: give the objective's ledger_entries as `entries`"
            )
