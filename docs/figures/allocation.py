"""Draws `allocation.svg`: where RemBERT's parameters are, to scale, which of them are kept and which are dropped.

    python docs/figures/allocation.py

Numbers are those of `rembed inspect recipes/rembert.gin`. A unit of area is the same number of parameters everywhere:
the tables are as high as the vocabulary and as wide as their embeddings, the blocks as large as their parameters.
"""

from pathlib import Path

from rembed_keras import config
from rembed_keras.config.recipes.recipe import Recipe

FIGURE = Path(__file__).with_suffix(".svg")
RECIPE = Path(__file__).parents[2] / "recipes/rembert.gin"

HEIGHT = 220  # of all three parts, in pixels
WIDTH_OF_OUTPUT = 136  # in pixels; the other widths follow from their parameters
GAP, LEFT, TOP = 26, 68, 80
ENLARGED = 1.2  # where there is room; a telephone shows all of it, so it must be narrow to be read there
KEPT, DROPPED, INK, QUIET = "var(--kept)", "var(--dropped)", "var(--ink)", "var(--quiet)"
# as the page around it is, dark or light
THEMES = """\
svg { --kept: #2563a8; --dropped: #c2410c; --ink: #1f2933; --quiet: #5b6773; --paper: #ffffff }
@media (prefers-color-scheme: dark) {
  svg { --kept: #7db4f0; --dropped: #f59e6c; --ink: #e4e7eb; --quiet: #a3adb8; --paper: #1e2129 }
}"""
SVG = """\
<svg xmlns="http://www.w3.org/2000/svg" width="{shown:.0f}" viewBox="0 0 {width:.0f} {height:.0f}" \
font-family="sans-serif" font-size="13">
<title>{title}</title>
<style>
{style}
</style>
<rect width="100%" height="100%" rx="8" fill="var(--paper)"/>
{body}
</svg>
"""


def figure(width: float, height: float, title: str, style: str, body: list[str]) -> str:
    """An SVG of what is drawn."""
    return SVG.format(
        width=width, height=height, shown=ENLARGED * width, title=title, style=style, body="\n".join(body)
    )


def ledger_of(recipe: Recipe) -> dict:
    """The ledger of a recipe, as `rembed inspect --json` prints it."""
    ledger = config.ledger_of(recipe)
    assert ledger, "the recipe pre-trains nothing"
    return ledger.to_json()


def text(x: float, y: float, words: str, colour: str = INK, anchor: str = "middle", **attributes: str) -> str:
    """A line of text, centred at x, or with its "start" or "end" there."""
    others = "".join(f' {name.replace("_", "-")}="{value}"' for name, value in attributes.items())
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{colour}"{others}>{words}</text>'


def box(x: float, width: float, colour: str, dashes: str = "", y: float = TOP, height: float = HEIGHT) -> str:
    """A part of a model, as wide as it has parameters."""
    drawn = f'fill="{colour}" fill-opacity="0.16" stroke="{colour}"' + (f' stroke-dasharray="{dashes}"' * bool(dashes))
    return f'<rect x="{x:.1f}" y="{y:g}" width="{width:.1f}" height="{height:g}" {drawn}/>'


def arrow(x: float, to: float) -> str:
    """What flows from one part to the next."""
    middle = TOP + HEIGHT / 2
    head = f"M{to - 7:.1f} {middle - 4} L{to:.1f} {middle} L{to - 7:.1f} {middle + 4}"
    return f'<path d="M{x:.1f} {middle} H{to:.1f} {head}" fill="none" stroke="{QUIET}"/>'


def brace(start: float, end: float, name: str, parameters: int, total: int, colour: str) -> str:
    """What becomes of the parts above, and how many parameters they have."""
    y = TOP + HEIGHT + 16
    line = f'<path d="M{start:.1f} {y} v8 H{end:.1f} v-8" fill="none" stroke="{colour}" stroke-width="2"/>'
    said = f"{parameters:,}, {parameters / total:.0%}"
    middle = (start + end) / 2
    return "\n".join([line, text(middle, y + 28, name, colour, font_weight="bold"), text(middle, y + 46, said, colour)])


def titles(x: float, name: str, shape: str, parameters: int) -> str:
    """What stands above a part."""
    lines = [text(x, TOP - 50, name, font_weight="bold"), text(x, TOP - 32, shape, QUIET)]
    return "\n".join([*lines, text(x, TOP - 15, f"{parameters / 1e6:,.0f}M", QUIET)])


def drawing() -> str:
    """The figure, as SVG."""
    recipe = config.load(str(RECIPE))
    ledger, knobs = ledger_of(recipe), {name: knob["value"] for name, knob in recipe.knobs().items()}
    sizes = {name: part["parameters"] for name, part in ledger["parts"].items()}
    vocabulary, blocks = knobs["VOCABULARY_SIZE"], knobs["NUM_LAYERS"]
    narrow, wide = knobs["INPUT_EMBEDDING_DIM"], knobs["OUTPUT_EMBEDDING_DIM"]
    hidden = recipe.configuration()["modeling.Encoder.hidden_dim"]

    width = {name: WIDTH_OF_OUTPUT * size / (vocabulary * wide) for name, size in sizes.items()}
    table, stack = width["input embedding"], width[f"{blocks} blocks"]
    first, second = LEFT, LEFT + table + GAP
    third, end = second + stack + GAP, second + stack + GAP + WIDTH_OF_OUTPUT
    middle = TOP + HEIGHT / 2
    body = [
        titles(first + table / 2, "input table", f"{vocabulary:,} × {narrow}", sizes["input embedding"]),
        titles(second + stack / 2, f"{blocks} blocks", f"of width {hidden:,}", sizes[f"{blocks} blocks"]),
        titles((third + end) / 2, "output table", f"{vocabulary:,} × {wide:,}", sizes["output embedding"]),
        text(24, middle - 4, "token", QUIET),
        text(24, middle + 12, "ids", QUIET),
        *(arrow(*ends) for ends in ((48, first), (first + table, second), (second + stack, third), (end, end + 20))),
        text(end + 46, middle - 4, "masked", QUIET),
        text(end + 46, middle + 12, "tokens", QUIET),
        box(first, table, KEPT),
        *(box(second + i * stack / blocks, stack / blocks, KEPT) for i in range(blocks)),
        box(third, WIDTH_OF_OUTPUT, DROPPED, "5 4"),
        brace(first, second + stack, "kept: the encoder", ledger["kept"], ledger["total"], KEPT),
        brace(third, end, "dropped after pre-training", ledger["dropped"], ledger["total"], DROPPED),
    ]
    title = f"RemBERT's parameters: a narrow input table and {blocks} blocks are kept, a wide output table is dropped"
    return figure(end + 72, TOP + HEIGHT + 78, title, THEMES, body)


if __name__ == "__main__":
    FIGURE.write_text(drawing(), encoding="utf-8")
