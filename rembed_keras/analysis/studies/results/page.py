"""`study.html`: a study on one page, which needs no other file, no script and no network."""

from collections.abc import Mapping
from html import escape

from rembed_keras.analysis.layers import panels_by_arm
from rembed_keras.analysis.reports.significance import Comparison
from rembed_keras.analysis.reports.tables import Table
from rembed_keras.analysis.studies.definition import Hypothesis
from rembed_keras.analysis.studies.results.drawings import breakdown, colours, curves, dots, layers
from rembed_keras.analysis.studies.results.report import ABOUT, failures, number, scores_table, verdicts_table
from rembed_keras.analysis.studies.verdicts import CONTRADICTED, SUPPORTED, by_language

STYLE = """
:root { color-scheme: light }
body { font: 16px/1.5 system-ui, sans-serif; color: #222; background: #fff }
body { max-width: 72rem; margin: 0 auto; padding: 1rem; overflow-wrap: anywhere }
h1 { font-size: 1.6rem } h2 { font-size: 1.2rem; margin-top: 2rem } h3 { font-size: 1rem }
svg { width: 100%; max-width: 34rem; height: auto; display: block }
svg text { font: 11px system-ui, sans-serif; fill: #222 }
.wide { overflow-x: auto } table { border-collapse: collapse; font-size: .9rem }
th, td { padding: .25rem .6rem; border-bottom: 1px solid #ddd; text-align: right; vertical-align: top }
th.word, td.word { text-align: left }
.cards { display: grid; gap: 1.5rem; grid-template-columns: repeat(auto-fit, minmax(min(100%, 20rem), 1fr)) }
.card { border-left: .3rem solid #999; padding-left: .8rem; min-width: 0 }
.supported { border-color: #009e73 } .contradicted { border-color: #d55e00 }
.key span { white-space: nowrap; margin-right: 1rem } .key i { display: inline-block; width: .8rem; height: .8rem }
small { color: #555 }
"""
POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
BELOW = "Below: differences with intervals over seeds, cut at the edges; dashed the smallest effect worth seeing."

LAYERS = "By layer, from 0, the embeddings. Solid: pretrained; dashed: fine-tuned; grey: encoder-free baselines."


def page(record: Mapping, title: str) -> str:
    """The page of a study.

    Args:
        record: what `study.json` says.
        title: of the page.
    """
    finished = sum(run["state"] == "finished" for run in record["runs"])
    where = f"rembed_keras {record['version']}, commit {record['commit'] or 'unknown'}"
    parts = [
        f"<h1>{escape(title)}</h1>",
        f"<p>{finished} of {len(record['runs'])} runs are finished. <small>{escape(where)}</small></p>",
        _list(failures(record)),
        _verdicts(record),
        f"<h2>Scores</h2>{_table(scores_table(record))}",
        f"<h2>Parameters</h2>{breakdown(record['arms'])}",
        _curves(record),
        _layers(record),
        f"<h2>All verdicts</h2>{_table(verdicts_table(record))}<p><small>{escape(ABOUT)}</small></p>"
        if record["hypotheses"]
        else "",
    ]
    head = (
        '<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}"><link rel="icon" href="data:,">'
        f"<title>{escape(title)}</title><style>{STYLE}</style>"
    )
    body = "\n".join(part for part in parts if part)
    return f'<!DOCTYPE html>\n<html lang="en"><head>{head}</head>\n<body>\n{body}\n</body></html>\n'


def _verdicts(record):
    cards = []
    for each, verdict in zip(record["hypotheses"], record["verdicts"], strict=True):
        found = by_language(Hypothesis(**each), record["scores"], record["alpha"])
        overall = None
        if verdict["difference"] is not None:
            low, high, p = (float("nan") if verdict[key] is None else verdict[key] for key in ("low", "high", "p"))
            overall = Comparison(verdict["difference"], low, high, p)
        expected = f"{each['arm']} {each['expected']} than {each['against']} on {each['measure']}"
        effect = f"difference {number(verdict['difference'])}"
        if verdict["low"] is not None:
            effect += f", {1 - record['alpha']:.0%} interval {number(verdict['low'])} to {number(verdict['high'])}"
        smallest, detectable = number(each["smallest_effect"]), number(verdict["detectable"])
        power = f"smallest effect worth seeing {smallest}, detectable {detectable}"
        note = f" ({verdict['note']})" if verdict["note"] else ""
        kind = {SUPPORTED: "supported", CONTRADICTED: "contradicted"}.get(verdict["verdict"], "open")
        cards.append(
            f'<div class="card {kind}"><h3>{escape(each["name"])}</h3>'
            f"<p><b>{escape(verdict['verdict'])}</b>{escape(note)}: {escape(effect)}; {escape(power)}.</p>"
            f"<p><small>Expected: {escape(expected)}. {BELOW}</small></p>"
            f"{dots(overall, found, each['smallest_effect'])}</div>"
        )
    return f'<h2>Verdicts</h2><div class="cards">{"".join(cards)}</div>' if cards else ""


def _curves(record):
    names = [arm["name"] for arm in record["arms"]]
    drawn = curves(record["curves"], names)
    return f"<h2>Loss</h2>{_key(names)}{drawn}" if drawn else ""


def _layers(record):
    names = [arm["name"] for arm in record["arms"]]
    cards = [
        f'<div class="card"><h3>{escape(panel.title)}</h3>{layers(panel, names)}</div>'
        for panel in panels_by_arm(record)
    ]
    return (
        f'<h2>Layers</h2>{_key(names)}<p><small>{LAYERS}</small></p><div class="cards">{"".join(cards)}</div>'
        if cards
        else ""
    )


def _key(names):
    keys = (
        f'<span><i style="background:{colour}"></i> {escape(name)}</span>' for name, colour in colours(names).items()
    )
    return f'<p class="key">{"".join(keys)}</p>'


def _table(table: Table) -> str:
    words = [' class="word"' if index < table.words else "" for index in range(len(table.columns))]
    head = "".join(f"<th{word}>{escape(cell)}</th>" for word, cell in zip(words, table.columns, strict=True))
    rows = (
        "".join(f"<td{word}>{escape(cell)}</td>" for word, cell in zip(words, row, strict=True)) for row in table.rows
    )
    return f'<div class="wide"><table><tr>{head}</tr>{"".join(f"<tr>{row}</tr>" for row in rows)}</table></div>'


def _list(lines):
    return f"<ul>{''.join(f'<li>{escape(line)}</li>' for line in lines)}</ul>" if lines else ""
