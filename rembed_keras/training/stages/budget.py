"""How often a run will read each language, counted before it starts."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext, redirect_stdout
from dataclasses import dataclass
from io import StringIO
from pathlib import Path

from rich.table import Table
from rich.text import Text

from rembed_keras.data.corpus import Corpus
from rembed_keras.data.pipeline.mixture import Mixture
from rembed_keras.errors import Count, check_counts
from rembed_keras.training.loop.workdir import Workdir


@dataclass(frozen=True)
class Budget:
    """What some steps read of each language of a mixture.

    Attributes:
        batches: the `Mixture`.
        steps: of the run, or of the first of its pre-trainings.
        later: of the others, the mixture and the step that each ends at.
    """

    batches: Mixture
    steps: int
    later: Sequence[tuple[Mixture, int]] = ()

    def _parts(self) -> Iterator[tuple[Mixture, int, int]]:
        """Yields the mixture of each pre-training, and the steps from and up to which it is read."""
        begin = 0
        for mixture, end in ((self.batches, self.steps), *self.later):
            yield mixture, begin, end
            begin = end

    def to_json(self) -> dict:
        """Of each language and of all: tokens there are, tokens that are read, shares of both, and epochs."""
        sizes = self.batches.corpus.num_tokens
        read: dict[str, int] = {}
        for mixture, begin, end in self._parts():
            for language, tokens in zip(mixture.languages, mixture.tokens(end) - mixture.tokens(begin), strict=True):
                read[language] = read.get(language, 0) + int(tokens)
        have, get = sum(sizes.values()), sum(read.values())

        def entry(tokens, taken):
            return {
                "tokens": tokens,
                "share_of_tokens": tokens / have,
                "read": taken,
                "share_of_read": taken / get,
                "epochs": taken / tokens,
            }

        languages = {language: entry(sizes[language], taken) for language, taken in read.items()}
        return {"steps": [end for _, _, end in self._parts()][-1], "languages": languages, "all": entry(have, get)}

    def table(self) -> Table:
        """The same as a table, large languages first."""
        shown = self.to_json()
        size = " + ".join(
            f"{phase.last_step - max(phase.first_step, begin):,} x {phase.batch_size:,} x {phase.sequence_length:,}"
            for mixture, begin, end in self._parts()
            for phase in mixture.phases(end)
            if phase.last_step > begin
        )
        table = Table(title=f"What {size} tokens read")
        for column in ("language", "tokens", "of all", "read", "of all read", "epochs"):
            table.add_column(column, justify="left" if column == "language" else "right")
        ordered = sorted(shown["languages"].items(), key=lambda item: -item[1]["tokens"])
        for number, (name, entry) in enumerate([*ordered, ("all", shown["all"])], start=1):
            table.add_row(
                Text(name),  # whose brackets are no markup
                f"{entry['tokens']:,}",
                f"{entry['share_of_tokens']:.2%}",
                f"{entry['read']:,}",
                f"{entry['share_of_read']:.2%}",
                f"{entry['epochs']:,.2f}",
                end_section=number == len(ordered),
            )
        return table


def budget(
    workdir: str,
    mixture: Callable,
    steps: Count,
    prepare: Callable | None = None,
    corpus: str | None = None,
    later: Sequence[tuple[Callable, int]] = (),
) -> Budget:
    """What a run's pre-training will read.

    Args:
        workdir: the run's folder; text that was not prepared is prepared in it, as the run would, and stays.
        mixture: makes the `Mixture` of a `Corpus`.
        steps: steps of the run, or of the first of its pre-trainings.
        prepare: the stage that prepares text, if the run has one.
        corpus: folder that `rembed prepare` wrote; the workdir's own by default.
        later: of further pre-trainings, what makes the mixture, and the step that each ends at.

    Raises:
        UserError: for steps that make no sense, and as the stage and the mixture do.
    """
    check_counts({"STEPS": steps})
    own = Path(workdir) / "corpus"
    if corpus is None and prepare is not None:
        is_there = own.is_dir()  # perhaps of other text or settings, which the stage refuses
        folder = Workdir(workdir, is_chief=not is_there)  # a run that goes on may hold it
        try:
            with redirect_stdout(StringIO()) if is_there else nullcontext():
                prepare(folder)
        finally:
            folder.close()
    text = Corpus(corpus or own)
    return Budget(mixture(text), steps, [(make(text), end) for make, end in later])
