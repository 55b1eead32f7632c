"""TensorBoard: curves of every training, beside each other where they measure the same, and the run's settings."""

import shutil
from collections.abc import Mapping, Sequence

import numpy as np

from rembed_keras.analysis.event_files.charts import layout
from rembed_keras.analysis.event_files.events import EventFile, scalar, text
from rembed_keras.analysis.event_files.trials import write_trial
from rembed_keras.analysis.pages.records import ledger_table, recipe_tables
from rembed_keras.tasks.scores import Score
from rembed_keras.training.sinks.pieces import Pieces
from rembed_keras.training.sinks.sink import Sink, Watched, final_numbers, numbers_of, tables_of

PREFIXES = {"evaluation": "pretrain"}  # what is held out is drawn over training's curves
LINES = ("unigram_entropy",)  # numbers of a row that are drawn as a line over its loss
BY = ("tokens", "examples")  # axes beside that of steps
LOSSES = ("loss", "accuracy")  # what is drawn on these too
PROJECTOR = """embeddings {
  tensor_name: "input embedding"
  tensor_path: "vectors.tsv"
  metadata_path: "pieces.tsv"
}
"""
CHARTS = {
    "Pre-training": {
        "loss by language": r"pretrain/(.*/)?loss/",
        "loss in training and held out, and the unigram entropy": r"pretrain/loss$",
    }
}


class TensorBoard(Sink):
    """Event files in the run's folder `tensorboard/`, a folder a training.

    Curves of pre-training are called `pretrain/<number>`; what an evaluation measures has the name that training's has,
    and is another curve of the same chart. Those of fine-tuning are called `finetune/<task>/<number>`, a curve a model.
    Losses are drawn by tokens and by examples too, `by_tokens/pretrain/loss`. The tab CUSTOM SCALARS has all languages
    in one chart, HPARAMS the recipe's knobs and the scores, TEXT the recipe, the ledger and the tables of evaluators,
    PROJECTOR the most frequent pieces.
    """

    def __init__(self) -> None:
        self._files: dict[str, EventFile] = {}

    def open(self, watched: Watched) -> None:
        self._watched, self._folder = watched, watched.path / "tensorboard"
        shutil.rmtree(self._folder / "recipe", ignore_errors=True)
        texts = {"recipe": "\n\n".join(table.markdown() for table in recipe_tables(watched.recipe))}
        if watched.ledger is not None:
            texts["ledger"] = ledger_table(watched.ledger).markdown()
        file = EventFile(self._folder / "recipe")
        file.add(layout(CHARTS), *(text(title, each) for title, each in texts.items() if each))
        file.close()

    def begin(self, run: str, rows: Sequence[Mapping]) -> None:
        for folder in (run, *(f"{run}_{line}" for line in LINES)):
            if folder in self._files:
                self._files.pop(folder).close()
            shutil.rmtree(self._folder / folder, ignore_errors=True)
        self._files[run] = EventFile(self._folder / run)
        for row in rows:
            self.draw(row)

    def draw(self, row: Mapping) -> None:
        run, step, prefix = row["run"], row["step"], prefix_of(row["run"])
        numbers, tables = numbers_of(row), tables_of(row)
        lines = {name: numbers.pop(name) for name in LINES if name in numbers}
        curves = [scalar(f"{prefix}/{name}", value) for name, value in numbers.items()]
        file = self._files[run]
        texts = [text(f"{prefix}/{name}", table.markdown()) for name, table in tables.items()]
        file.add(*curves, *texts, step=step)
        for axis in BY:
            if axis in numbers:
                own = [scalar(f"by_{axis}/{prefix}/{name}", numbers[name]) for name in LOSSES if name in numbers]
                file.add(*own, step=int(numbers[axis]))
        for name, value in lines.items():
            folder = f"{run}_{name}"
            if folder not in self._files:
                self._files[folder] = EventFile(self._folder / folder)
            self._files[folder].add(scalar(f"{prefix}/loss", value), step=step)

    def show_pieces(self, pieces: Pieces) -> None:
        folder = self._folder / "pieces"
        shutil.rmtree(folder, ignore_errors=True)
        file = EventFile(folder)  # which makes it a run that the projector looks at
        file.add(text("pieces", f"{len(pieces.names):,} pieces are in the tab PROJECTOR: color them by language."))
        file.close()
        header, rows = "piece\tlanguage\tcount", zip(pieces.names, pieces.languages, pieces.counts, strict=True)
        lines = ["\t".join(str(cell).replace("\t", " ") for cell in row) for row in rows]
        (folder / "pieces.tsv").write_text("\n".join([header, *lines]) + "\n", encoding="utf-8")
        np.savetxt(folder / "vectors.tsv", pieces.vectors, fmt="%.6g", delimiter="\t")
        (folder / "projector_config.pbtxt").write_text(PROJECTOR, encoding="utf-8")

    def score(self, scores: Sequence[Score], rows: Sequence[Mapping]) -> None:
        watched, numbers = self._watched, final_numbers(scores, rows)
        if numbers:
            write_trial(self._folder / "scores", watched.name, watched.settings, numbers)

    def close(self) -> None:
        for file in self._files.values():
            file.close()
        self._files.clear()


def prefix_of(run: str) -> str:
    """What the names of a training's curves begin with.

    >>> prefix_of("evaluation"), prefix_of("finetune/glue/cola/pretrained-lr0.001-seed0")
    ('pretrain', 'finetune/glue/cola')
    """
    return PREFIXES.get(run) or (run.rpartition("/")[0] if run.count("/") > 1 else run)
