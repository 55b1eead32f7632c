"""How often a run will read each language, counted before it starts."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from rich.table import Table

from rembed_keras.data.corpus import Corpus
from rembed_keras.data.pipeline.mixture import Mixture
from rembed_keras.errors import Count, check_counts
from rembed_keras.training.loop.workdir import Workdir


@dataclass(frozen=True)
class Budget:
    """What some steps read of each language of a mixture.

    Attributes:
        batches: the `Mixture`.
        steps: of the run.
    """

    batches: Mixture
    steps: int

    def to_json(self) -> dict:
        """Of each language and of all: tokens there are, tokens that are read, shares of both, and epochs."""
        sizes = self.batches.corpus.num_tokens
        read = {
            language: int(tokens)
            for language, tokens in zip(self.batches.languages, self.batches.tokens(self.steps), strict=True)
        }
        have, get = sum(sizes.values()), sum(read.values())

        def entry(tokens, taken):
            return {
                "tokens": tokens,
                "share_of_tokens": tokens / have,
                "read": taken,
                "share_of_read": taken / get,
                "epochs": taken / tokens,
            }

        languages = {language: entry(sizes[language], read[language]) for language in self.batches.languages}
        return {"steps": self.steps, "languages": languages, "all": entry(have, get)}

    def table(self) -> Table:
        """The same as a table, large languages first."""
        shown = self.to_json()
        phases = self.batches.phases(self.steps)
        size = " + ".join(
            f"{phase.last_step - phase.first_step:,} x {phase.batch_size:,} x {phase.sequence_length:,}"
            for phase in phases
        )
        table = Table(title=f"What {size} tokens read")
        for column in ("language", "tokens", "of all", "read", "of all read", "epochs"):
            table.add_column(column, justify="left" if column == "language" else "right")
        ordered = sorted(shown["languages"].items(), key=lambda item: -item[1]["tokens"])
        for number, (name, entry) in enumerate([*ordered, ("all", shown["all"])], start=1):
            table.add_row(
                name,
                f"{entry['tokens']:,}",
                f"{entry['share_of_tokens']:.2%}",
                f"{entry['read']:,}",
                f"{entry['share_of_read']:.2%}",
                f"{entry['epochs']:,.2f}",
                end_section=number == len(ordered),
            )
        return table


def budget(
    workdir: str, mixture: Callable, steps: Count, prepare: Callable | None = None, corpus: str | None = None
) -> Budget:
    """What a run's pre-training will read.

    Args:
        workdir: the run's folder; text that was not prepared is prepared in it, as the run would, and stays.
        mixture: makes the `Mixture` of a `Corpus`.
        steps: steps of the run.
        prepare: the stage that prepares text, if the run has one.
        corpus: folder that `rembed prepare` wrote; the workdir's own by default.

    Raises:
        UserError: for steps that make no sense, and as the stage and the mixture do.
    """
    check_counts({"STEPS": steps})
    own = Path(workdir) / "corpus"
    if corpus is None and prepare is not None and not own.is_dir():
        folder = Workdir(workdir)
        try:
            prepare(folder)
        finally:
            folder.close()
    return Budget(mixture(Corpus(corpus or own)), steps)
