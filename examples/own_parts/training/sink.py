"""A sink: a journal of the losses, a line each, as a file that any program reads."""

from collections.abc import Mapping, Sequence

from rembed_keras.training.sinks import Sink, Watched


class Journal(Sink):
    """Writes `journal/<training>.tsv` of the run's folder: a step and a loss a line.

    >>> Journal().name_of("finetune/topics/pretrained-lr0.001-seed0")
    'finetune-topics-pretrained-lr0.001-seed0.tsv'
    """

    def open(self, watched: Watched) -> None:
        self.folder = watched.path / "journal"
        self.folder.mkdir(exist_ok=True)

    def begin(self, run: str, rows: Sequence[Mapping]) -> None:
        (self.folder / self.name_of(run)).write_text("", encoding="utf-8")  # what a killed process wrote goes
        for row in rows:
            self.draw(row)

    def draw(self, row: Mapping) -> None:
        if row.get("loss") is not None:  # as where steps were skipped
            with open(self.folder / self.name_of(row["run"]), "a", encoding="utf-8") as file:
                file.write(f"{row['step']}\t{row['loss']}\n")

    @staticmethod
    def name_of(run: str) -> str:
        """The name of a training's file."""
        return f"{run.replace('/', '-')}.tsv"
