"""A stage: how many pieces the run's tokenizer makes of a word, by language, in a file of the run's folder."""

import json
from itertools import islice

from rembed_keras.data.corpus import corpus_of_run
from rembed_keras.data.text import read_lines, text_files
from rembed_keras.data.writing import write_atomically
from rembed_keras.errors import UserError


def fertility(workdir, text_dir, languages: tuple[str, ...] = ("de", "en"), paragraphs: int = 100) -> None:
    """Writes `fertility.json`: pieces a word between spaces, of the first paragraphs of each language.

    Source: Rust et al. 2021, section 4.2.

    Args:
        workdir: the run's folder, which every stage is given.
        text_dir: a folder of text.
        languages: whose text is read; each must have spaces.
        paragraphs: how many are read of a language.

    Raises:
        UserError: for a language whose text is not there.
    """
    tokenizer, files, found = corpus_of_run(workdir.path).tokenizer, text_files(text_dir), {}
    for language in languages:
        if language not in files:
            raise UserError(f"fertility: {text_dir} has no text of {language!r}")
        texts = [*islice(read_lines(files[language]), paragraphs)]
        found[language] = sum(map(len, tokenizer.encode_batch(texts))) / sum(len(text.split()) for text in texts)
    write_atomically(workdir.path / "fertility.json", json.dumps(found))
