"""A page that needs no other file, no script and no network: its style, its head, and tables.

One style serves the pages of runs and of studies; drawings are in `drawings`.
"""

from collections.abc import Iterable, Sequence
from html import escape

from rembed_keras.analysis.pages.drawings import colours
from rembed_keras.analysis.reports.tables import Table

STYLE = """
:root { color-scheme: light }
body { font: 16px/1.5 system-ui, sans-serif; color: #222; background: #fff }
body { max-width: 72rem; margin: 0 auto; padding: 1rem; overflow-wrap: anywhere }
h1 { font-size: 1.6rem } h2 { font-size: 1.2rem; margin-top: 2rem } h3 { font-size: 1rem }
svg { width: 100%; max-width: 34rem; height: auto; display: block }
svg text { font: 11px system-ui, sans-serif; fill: #222 }
.wide { overflow-x: auto } table { border-collapse: collapse; font-size: .9rem }
th, td { padding: .25rem .6rem; border-bottom: 1px solid #ddd; text-align: right; vertical-align: top }
th, td { white-space: nowrap; overflow-wrap: break-word }
th.word, td.word { text-align: left; white-space: normal }
.cards { display: grid; gap: 1.5rem; grid-template-columns: repeat(auto-fit, minmax(min(100%, 20rem), 1fr)) }
.card { border-left: .3rem solid #999; padding-left: .8rem; min-width: 0 }
.supported { border-color: #009e73 } .contradicted { border-color: #d55e00 }
.key span { white-space: nowrap; margin-right: 1rem } .key i { display: inline-block; width: .8rem; height: .8rem }
small { color: #555 }
"""
POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"


def document(title: str, parts: Iterable[str]) -> str:
    """A page.

    Args:
        title: of the page, in its head.
        parts: of its body, HTML; empty ones are left out.
    """
    head = (
        '<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}"><link rel="icon" href="data:,">'
        f"<title>{escape(title)}</title><style>{STYLE}</style>"
    )
    body = "\n".join(part for part in parts if part)
    return f'<!DOCTYPE html>\n<html lang="en"><head>{head}</head>\n<body>\n{body}\n</body></html>\n'


def section(title: str, *parts: str) -> str:
    """A heading and what is below it, HTML; nothing where nothing is."""
    return f"<h2>{escape(title)}</h2>{''.join(parts)}" if any(parts) else ""


def note(text: str) -> str:
    """A remark in small letters."""
    return f"<p><small>{escape(text)}</small></p>"


def key(names: Sequence[str]) -> str:
    """The colors of names, as drawings have them."""
    keys = (
        f'<span><i style="background:{colour}"></i> {escape(name)}</span>' for name, colour in colours(names).items()
    )
    return f'<p class="key">{"".join(keys)}</p>'


def table_html(table: Table) -> str:
    """A table, without its title."""
    words = [' class="word"' if index < table.words else "" for index in range(len(table.columns))]
    head = "".join(f"<th{word}>{escape(cell)}</th>" for word, cell in zip(words, table.columns, strict=True))
    rows = (
        "".join(f"<td{word}>{escape(cell)}</td>" for word, cell in zip(words, row, strict=True)) for row in table.rows
    )
    return f'<div class="wide"><table><tr>{head}</tr>{"".join(f"<tr>{row}</tr>" for row in rows)}</table></div>'


def listing(lines: Sequence[str]) -> str:
    """Lines with bullets; nothing for none."""
    return f"<ul>{''.join(f'<li>{escape(line)}</li>' for line in lines)}</ul>" if lines else ""
