"""What feeds a model and what a user waits for: `python -m benchmarks.rates [--rounds 3] [--out FOLDER]`.

Batches alone, tokenizing beside the SentencePiece library's own threads, and the time of commands. Writes
FOLDER/rates.json.
"""

import argparse
import gzip
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from itertools import islice
from pathlib import Path

from rembed_keras.data import sample
from rembed_keras.data.pipeline.mixture import Mixture
from rembed_keras.data.prepare.corpora import prepare

ROWS = ((16, 128), (64, 64), (256, 128), (32, 512))  # batches that are read: rows, tokens a row
BATCH_TOKENS = 2_000_000  # that are read of each
COMMANDS = {
    "python, nothing": ["-c", "pass"],
    "import rembed_keras": ["-c", "import rembed_keras"],
    "import rembed_keras.modeling": ["-c", "import rembed_keras.modeling"],
    "rembed --help": ["-m", "rembed_keras", "--help"],
    "rembed inspect recipes/quickstart.gin": ["-m", "rembed_keras", "inspect", "recipes/quickstart.gin"],
}


def reading(corpus, rows: int, length: int, whole_word: bool) -> float:
    """Tokens a second of batches that nobody waits for."""
    count = max(8, BATCH_TOKENS // (rows * length))
    stream = iter(Mixture(corpus, rows, length, whole_word=whole_word).batches(0, count + 1))
    next(stream)
    begun = time.perf_counter()
    read = sum(1 for _ in islice(stream, count))
    return read * rows * length / (time.perf_counter() - begun)


def tokenizing(tokenizer, lines: list[str]) -> dict[str, float]:
    """Tokens a second of this package and of the library alone, on all cores."""
    import sentencepiece

    library = sentencepiece.SentencePieceProcessor(model_file=str(tokenizer.path))
    tokenizers = {
        "rembed": lambda: sum(len(ids) for ids in tokenizer.encode_stream(lines)),
        "sentencepiece": lambda: sum(len(ids) for ids in library.encode(lines, num_threads=os.cpu_count())),
    }
    rates = {}
    for name, tokenize in tokenizers.items():
        begun = time.perf_counter()
        rates[name] = tokenize() / (time.perf_counter() - begun)
    return rates


def command(arguments: list[str]) -> float:
    """Seconds that a Python process takes."""
    begun = time.perf_counter()
    subprocess.run([sys.executable, *arguments], check=True, capture_output=True)
    return time.perf_counter() - begun


def main() -> None:
    """Runs rounds of everything, and writes the medians."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results"))
    options = parser.parse_args()
    found: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory() as folder:
        corpus = prepare(sample.text_folder(), Path(folder) / "corpus", vocabulary_size=8000)
        files = sorted(sample.text_folder().glob("*.txt.gz"))
        lines = [line for file in files for line in gzip.decompress(file.read_bytes()).decode().splitlines()]
        for _ in range(options.rounds):
            for rows, length in ROWS:
                for whole_word in (False, True):
                    name = f"batches of {rows} x {length}{', whole words' * whole_word}, tokens/s"
                    found.setdefault(name, []).append(reading(corpus, rows, length, whole_word))
            for name, rate in tokenizing(corpus.tokenizer, lines).items():
                found.setdefault(f"tokenizing, {name}, tokens/s", []).append(rate)
            for name, arguments in COMMANDS.items():
                found.setdefault(f"{name}, s", []).append(command(arguments))
    options.out.mkdir(parents=True, exist_ok=True)
    report = {name: {"median": statistics.median(each), "rounds": each} for name, each in found.items()}
    (options.out / "rates.json").write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    for name, each in report.items():
        print(f"{name:55} {each['median']:>14,.2f}   {min(each['rounds']):,.2f} – {max(each['rounds']):,.2f}")


if __name__ == "__main__":
    main()
