"""What is written for readers is true: links lead somewhere, figures are to scale, words are the field's.

Blocks of code and commands are in `test_blocks.py`.
"""

import importlib
import re
from pathlib import Path

import pytest

from rembed_keras.analysis.studies.record import disagreements

ROOT = Path(__file__).parents[2]
DOCS = [*sorted((ROOT / "docs").glob("*.md")), *sorted((ROOT / "docs/guides").glob("*.md"))]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "SECURITY.md", *DOCS]
BENCHMARKS = sorted((ROOT / "benchmarks").rglob("*.md"))
GIN = sorted(path for folder in ("gin", "recipes") for path in (ROOT / folder).rglob("*.gin"))

# the right column of DESIGN.md's table of words, as it would be written
NOT_THE_FIELDS = re.compile(
    r"hidden (word|token|position)s?\b|words that are named"
    r"|finetune_ways|finetune/ways|@ways\.|\bimport ways\b|\bthin matri(x|ces)|\banew\b"
    r"|\btranslations? (is |are |to be )*found\b|\bfinds? (\S+ ){0,4}translations?\b"
    r"|\bcommonest\b|\bknew only how often\b|\bhad for nothing\b"
    r"|\baccounts?\b|\bwhat (is|was) paid\b"
    r"|\bjudg(e[sd]?|ing)\b|\b(is|are|was|were) told\b|\b(told|tells?) in one line\b|\bhush"
    r"|\bno numbers?\b|\bfellows?\b|\bwhat a kill leaves\b"
    r"|\btoday's (block|body|manner)\b|\bblocks of today\b"
    r"|\borigins?\b"
    r"|\bhidden answers?\b|\banswers of the test\b"
    r"|\bin turn\b|\beverybody\b"
    r"|\blikeness\b|\bturns of those\b|\bstretch(es)?\b"
    r"|\bwhere what is\b|\bby the book\b",
    re.IGNORECASE,
)


def name_of(path):
    return path.relative_to(ROOT).as_posix()


def slugs(page):
    """The anchors of a page's headings."""
    headings = re.findall(r"^#+ (.*)", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_the_readme_is_a_page():
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 150


@pytest.mark.parametrize("page", [*PAGES, ROOT / "CHANGELOG.md", *BENCHMARKS], ids=name_of)
def test_links_lead_somewhere(page):
    for link in re.findall(r"\]\(([^)\s]+)\)", page.read_text(encoding="utf-8")):
        if "://" in link:
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), link
        assert not anchor or anchor in slugs(target), link


@pytest.mark.parametrize("page", [*PAGES, *BENCHMARKS], ids=name_of)
def test_paths_that_are_named_are_there(page):
    named = r"(?<![\w./-])((?:recipes|gin|docs|tests|benchmarks|rembed_keras)/[\w./-]*\w/?)(?![\w<*{])"
    for path in re.findall(named, page.read_text(encoding="utf-8")):
        assert (ROOT / path).exists(), path


@pytest.fixture
def script(monkeypatch):
    """Gives a script of docs/, which pytest's path has, or of the site; it may import its neighbours."""
    monkeypatch.syspath_prepend(ROOT / "docs/site")
    return importlib.import_module


@pytest.mark.parametrize("name", ["allocation", "decoupling"])
def test_figures_are_what_their_scripts_draw(name, script):
    assert script(name).drawing() == (ROOT / f"docs/figures/{name}.svg").read_text(encoding="utf-8")


def test_the_figure_that_moves_is_to_scale_and_stands_still_for_who_asks():
    figure = (ROOT / "docs/figures/decoupling.svg").read_text(encoding="utf-8")
    still, moving = re.fullmatch(
        r"(.*)@media \(prefers-reduced-motion: no-preference\) (\{.*?\n\}\n)(.*)", figure, re.DOTALL
    ).group(1, 2)
    assert "animation" in moving and "animation" not in figure.replace(moving, "") and "@keyframes" not in still
    rows = figure.split('<g class="row')[1:]
    kept = [int(re.search(r">([\d,]+) kept", row)[1].replace(",", "")) for row in rows]
    drawn = [sum(map(float, re.findall(r'width="([\d.]+)"[^>]*kept', row))) for row in rows]
    # pooler, head and what stands beside the table are not drawn
    assert [width / drawn[0] for width in drawn] == pytest.approx([each / kept[0] for each in kept], rel=0.01)


def test_the_page_of_what_studies_found_is_what_its_script_writes(script):
    assert script("verdicts").page() == (ROOT / "docs/results/README.md").read_text(encoding="utf-8")


def test_the_readmes_table_of_claims_is_drawn_from_the_studies(script):
    page = (ROOT / "README.md").read_text(encoding="utf-8")
    assert script("verdicts").readme(page) == page and page.count("| contradicted |") == 6
    assert script("verdicts").readme(page.replace("| -0.42 |", "| -0.43 |")) == page


@pytest.mark.parametrize(
    ("recipe", "said"),
    [
        (
            "quickstart",
            "1,061,568 kept, 2,089,536 dropped · FLOPs per token: 1.13M forward, 6.10M training · scored: 3.48",
        ),
        ("paper/multilingual/coupled_768", " · the paper's scores: XNLI 70.7, average of six tasks 62.3\n"),
        ("options/embeddings/decoupled", "FLOPs per token: 869K forward, 3.56M training · not scored\n"),
        ("finetune/glue/rte", "of `runs/quickstart` 1,061,568 kept · FLOPs per token: 1.13M forward · not scored\n"),
        ("reallocate/heal_mlm", " · costs those of `small` · not scored\n"),
        ("studies/smoke", " · 2 arms · 148,128 kept, 4,240 to 522,960 dropped · FLOPs per token: "),
    ],
)
def test_the_catalogue_says_what_a_recipe_costs_and_scored(recipe, said, script):
    assert said in script("catalogue").entry(ROOT / f"recipes/{recipe}.gin")


def test_the_catalogue_says_nothing_of_what_somebody_ran_here(pretrained, script, tmp_path, monkeypatch):
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs/quickstart").symlink_to(pretrained)
    monkeypatch.chdir(tmp_path)
    assert "of `runs/quickstart` 1,061,568 kept" in script("catalogue").entry(ROOT / "recipes/finetune/glue/rte.gin")


def test_scores_in_headers_are_those_of_the_page_that_they_name(script):
    found = {path: script("catalogue").header(path)[1] for path in GIN if path.is_relative_to(ROOT / "recipes")}
    cited = {path: said for path, said in found.items() if "](" in said}
    assert len(cited) == 3 and len([said for said in found.values() if said != "not scored"]) > 20
    for said in cited.values():
        score, page = re.fullmatch(r"(.*)\(\[.*\]\((.*)\)\)", said).groups()
        text = (ROOT / "docs" / page).read_text(encoding="utf-8")
        assert not [number for number in re.findall(r"\d+\.\d+(?: ±\d\.\d)?", score) if number not in text], said


@pytest.mark.parametrize(
    "path", sorted((ROOT / "docs/results").glob("*/study.json")), ids=lambda path: path.parent.name
)
def test_verdicts_of_studies_follow_from_their_scores(path):
    assert disagreements(path) == []


@pytest.mark.parametrize("path", [*PAGES, ROOT / "CHANGELOG.md", *BENCHMARKS, *GIN], ids=name_of)
def test_words_are_the_fields(path):
    lines = path.read_text(encoding="utf-8").splitlines()
    found = [f"{number}: {line.strip()}" for number, line in enumerate(lines, 1) if NOT_THE_FIELDS.search(line)]
    assert not found, "\n".join(found)


@pytest.mark.parametrize("folder", ["rembed_keras", "tests", "examples", "benchmarks"])
def test_words_of_programs_are_the_fields(folder):
    """Names too, whose words stand between underscores."""
    paths = [path for path in (ROOT / folder).rglob("*.py") if path != Path(__file__)]
    lines = ((path, line.strip()) for path in paths for line in path.read_text(encoding="utf-8").splitlines())
    found = [f"{name_of(path)}: {line}" for path, line in lines if NOT_THE_FIELDS.search(line.replace("_", " "))]
    assert paths and not found, "\n".join(found)
