"""Writes the notebooks that Colab opens of their sources, which are text: `make notebooks`.

    python notebooks/write.py

A source is Python in jupytext's percent format, which editors run cell by cell, formatters format and a diff shows.
Colab opens nothing but .ipynb, so these are written of them, without outputs, and a test holds both against each other.
The address of the repository stands in CITATION.cff; while it gives none, there is no badge and nothing to install.
"""

import json
import re
from pathlib import Path

HERE = Path(__file__).parent
CITATION = HERE.parent / "CITATION.cff"
BADGE = (
    "[![Open in Colab](https://colab.research.google.com/assets/colab-badge.svg)]"
    "(https://colab.research.google.com/github/{home}/blob/main/notebooks/{name}.ipynb)"
)
INSTALL = '%pip install --quiet "git+https://github.com/{home}"'
NO_ADDRESS = "# install the package first, as its README says"


def sources() -> list[Path]:
    """The notebooks' sources."""
    return sorted(path for path in HERE.glob("*.py") if path != Path(__file__))


def address(citation: str) -> str | None:
    """Owner and name of the repository on GitHub, of the text of CITATION.cff; None while it gives none."""
    found = re.search(r'^repository-code: "https://github\.com/([^"/]+/[^"/]+)"', citation, re.MULTILINE)
    return found[1] if found else None


def cells(source: str) -> list[tuple[str, list[str], str]]:
    """Cells of a source: kind ("markdown" or "code"), tags, text."""
    found = []
    for part in re.split(r"^# %%", source, flags=re.MULTILINE)[1:]:
        head, _, body = part.partition("\n")
        tags = re.findall(r'"(\w+)"', head)
        if "[markdown]" in head:
            lines = [line.removeprefix("#").removeprefix(" ") for line in body.strip().splitlines()]
            found.append(("markdown", tags, "\n".join(lines)))
        else:
            found.append(("code", tags, body.strip()))
    return found


def notebook(name: str, source: str, home: str | None) -> str:
    """A notebook as Jupyter's format 4.5 has it, without outputs.

    Args:
        name: of the source, without its ending.
        source: its text.
        home: owner and name of the repository; None for none.
    """
    written = []
    for number, (kind, tags, text) in enumerate(cells(source)):
        shown = (INSTALL.format(home=home) if home else NO_ADDRESS) if "install" in tags else text
        badge = "\n\n" + BADGE.format(home=home, name=name) if number == 0 and home else ""
        cell: dict = {"cell_type": kind, "id": f"cell-{number}", "metadata": {"tags": tags} if tags else {}}
        if kind == "code":
            cell |= {"execution_count": None, "outputs": []}
        written.append(cell | {"source": (shown + badge).splitlines(keepends=True)})
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    whole = {"cells": written, "metadata": {"kernelspec": kernel}, "nbformat": 4, "nbformat_minor": 5}
    return json.dumps(whole, indent=1, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    home = address(CITATION.read_text(encoding="utf-8"))
    for path in sources():
        text = notebook(path.stem, path.read_text(encoding="utf-8"), home)
        path.with_suffix(".ipynb").write_text(text, encoding="utf-8")
