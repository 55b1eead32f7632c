"""`study.html`: a study on one page, which needs no other file, no script and no network."""

from collections.abc import Mapping
from html import escape

from rembed_keras.analysis.layers import panels_by_arm
from rembed_keras.analysis.pages.document import document, key, listing, section, table_html
from rembed_keras.analysis.pages.drawings import breakdown, curves, dots, layers
from rembed_keras.analysis.reports.significance import Comparison
from rembed_keras.analysis.reports.tables import number
from rembed_keras.analysis.studies.definition import Hypothesis
from rembed_keras.analysis.studies.results.curves import on_one_axis
from rembed_keras.analysis.studies.results.report import (
    ABOUT,
    commits,
    failures,
    interval_name,
    scores_table,
    verdicts_table,
    writer,
)
from rembed_keras.analysis.studies.verdicts import CONTRADICTED, SUPPORTED, by_language

BELOW = "Below: differences with intervals over seeds, cut at the edges; dashed the smallest effect worth seeing."

LAYERS = "By layer, from 0, the embeddings. Solid: pretrained; dashed: fine-tuned; grey: encoder-free baselines."


def page(record: Mapping, title: str) -> str:
    """The page of a study.

    Args:
        record: what `study.json` says.
        title: of the page.
    """
    finished = sum(run["state"] == "finished" for run in record["runs"])
    parts = [
        f"<h1>{escape(title)}</h1>",
        f"<p>{finished} of {len(record['runs'])} runs are finished. <small>{escape(writer(record))}</small></p>",
        listing(failures(record)),
        section("Runs by commit", listing(commits(record))),
        _verdicts(record),
        f"<h2>Scores</h2>{table_html(scores_table(record))}",
        section("Parameters", breakdown(record["arms"])),
        _curves(record),
        _layers(record),
        f"<h2>All verdicts</h2>{table_html(verdicts_table(record))}<p><small>{escape(ABOUT)}</small></p>"
        if record["hypotheses"]
        else "",
    ]
    return document(title, parts)


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
            effect += f", {interval_name(record['alpha'])} {number(verdict['low'])} to {number(verdict['high'])}"
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
    shown, note = on_one_axis(record["curves"])
    drawn = curves(shown, names)
    said = f"<p><small>{escape(note[0].upper() + note[1:])}</small></p>" if note else ""
    return f"<h2>Loss</h2>{key(names)}{drawn}{said}" if drawn else ""


def _layers(record):
    names = [arm["name"] for arm in record["arms"]]
    cards = [
        f'<div class="card"><h3>{escape(panel.title)}</h3>{layers(panel, names)}</div>'
        for panel in panels_by_arm(record)
    ]
    return (
        f'<h2>Layers</h2>{key(names)}<p><small>{LAYERS}</small></p><div class="cards">{"".join(cards)}</div>'
        if cards
        else ""
    )
