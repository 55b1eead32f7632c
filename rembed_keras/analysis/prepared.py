"""What is printed of text that was prepared: how much there is, what cleaning took, and what is covered badly."""

import sys
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from rembed_keras.analysis.reports.terminal import Whole
from rembed_keras.data.corpus import Corpus
from rembed_keras.data.prepare.cleaning import VERDICT_TITLES, VERDICTS
from rembed_keras.data.prepare.sources import note_left_out

UNKNOWN = 0.01  # share of [UNK] among a language's tokens from which on a warning is printed
TRAIN_OTHERWISE = "use byte fallback, a larger vocabulary, or a tokenizer that covers its characters"


def show_prepared(corpus: Corpus, name: str, seconds: float, source: str | Path) -> None:
    """Prints what was prepared, and says on stderr which files were left out and which languages are covered badly.

    Args:
        corpus: what was prepared.
        name: of the corpus, as printed.
        seconds: how long preparing it took.
        source: of the text, as of `find_source`.
    """
    console = Console()
    if corpus.verdicts:
        console.print(Whole(_verdicts_table(corpus.verdicts)))
    tokens, size = sum(corpus.num_tokens.values()), corpus.tokenizer.vocabulary_size
    made = f"{tokens:,} tokens in {len(corpus.languages)} languages, vocabulary of {size:,}"
    if corpus.num_held_out:
        made += f"; {sum(corpus.num_held_out.values()):,} tokens are held out"
    console.out(f"{name}: {made}, in {seconds:.0f} s", highlight=False)
    if note := note_left_out(source):
        sys.stderr.write(f"note: {note}\n")
    is_trained = "tokenizer" not in (corpus.manifest.get("settings") or {})
    for language, share in corpus.unknown_shares.items():
        if share > UNKNOWN:
            advice = TRAIN_OTHERWISE if is_trained else "use a tokenizer that covers its characters"
            sys.stderr.write(f"warning: {share:.1%} of the tokens of {language} are [UNK]: {advice}\n")


def _verdicts_table(verdicts):
    table = Table(title="Paragraphs")
    for column in ("language", *VERDICT_TITLES):
        table.add_column(column, justify="left" if column == "language" else "right")
    for language, found in verdicts.items():
        table.add_row(Text(language), *(f"{found[verdict]:,}" for verdict in VERDICTS))  # brackets are no markup
    table.add_section()
    table.add_row("all", *(f"{sum(each[name] for each in verdicts.values()):,}" for name in VERDICTS))
    return table
