"""Hooks of MkDocs: pages that are generated, and links that lead out of docs/.

The start page is README.md, the reference comes from what rooms export and from `rembed --help`, the list of recipes
from `catalogue.py`. A file of the repository that a page links to is carried along as text, so nothing is missing.
"""

import ast
import posixpath
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
from catalogue import catalogue
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from rembed_keras import cli

ROOT = Path(__file__).parents[2]
PAGES = {  # of the site, from files that lie elsewhere
    "index.md": "README.md",
    "contributing.md": "CONTRIBUTING.md",
    "security.md": "SECURITY.md",
    "changelog.md": "CHANGELOG.md",
    "benchmarks.md": "benchmarks/README.md",
    "corpus.md": "benchmarks/corpus/README.md",
}
LINK = re.compile(r"(?<=\]\()(?!https?:|mailto:|#)([^)\s#]+)(#[^)\s]*)?(?=\))")
IN_STUB = re.compile(r"^from \.(\S*) import (\w+) as \w+$", re.MULTILINE)


def _rooms() -> Iterator[tuple[str, list[str]]]:
    """Packages with public names, and where each name is defined."""
    for path in sorted((ROOT / "rembed_keras").rglob("__init__.py")):
        package = ".".join(path.parent.relative_to(ROOT).parts)
        stub = path.with_suffix(".pyi")
        if stub.exists():
            found = IN_STUB.findall(stub.read_text(encoding="utf-8"))
            yield package, [f"{package}.{module}.{name}" for module, name in found]
            continue
        tree = ast.parse(path.read_text(encoding="utf-8"))
        lists = [
            each.value
            for each in tree.body
            if isinstance(each, ast.Assign) and ast.unparse(each.targets[0]) == "__all__"
        ]
        if lists:
            public = ast.literal_eval(lists[0])
            froms = [each for each in tree.body if isinstance(each, ast.ImportFrom)]
            homes = {alias.name: f"{each.module}.{alias.name}" for each in froms for alias in each.names}
            if homes.keys() & public:
                yield package, [homes[name] for name in public if name in homes]


ROOMS = dict(_rooms())


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Puts a page for each room in the place of REFERENCE."""
    for entry in config.nav or []:
        for title, pages in entry.items():
            if isinstance(pages, list) and "REFERENCE" in pages:
                # without the name that all begin with, which the column of a page's left side has no room for
                rooms = [{room.removeprefix("rembed_keras."): f"reference/{room}.md"} for room in ROOMS]
                entry[title] = [page for page in pages if page != "REFERENCE"] + rooms
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds generated pages, and the files that pages link to."""
    for uri, source in PAGES.items():
        files.append(File.generated(config, uri, content=(ROOT / source).read_text(encoding="utf-8")))
    files.append(File.generated(config, "catalogue.md", content=catalogue()))
    files.append(File.generated(config, "reference/commands.md", content=_commands()))
    for room in ROOMS:
        files.append(File.generated(config, f"reference/{room}.md", content=_room(room)))
    for path in sorted(_linked(files)):
        content: Any = _listing(path) if path.is_dir() else path.read_bytes()
        files.append(File.generated(config, _uri_of(path), content=content))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Leads links from a file's place in the repository to its place on the site."""
    folder = _source_of(page.file.src_uri).parent

    def led(match):
        target = posixpath.relpath(_uri_of((folder / match[1]).resolve()), posixpath.dirname(page.file.src_uri) or ".")
        return target + (match[2] or "")

    return LINK.sub(led, markdown)


def _source_of(uri: str) -> Path:
    """The file of the repository that a page is made of, or would be."""
    if uri.startswith("files/"):
        return ROOT / uri.removeprefix("files/")
    return ROOT / PAGES[uri] if uri in PAGES else ROOT / "docs" / uri


def _uri_of(path: Path) -> str:
    """Where a file or folder of the repository is on the site."""
    name = path.relative_to(ROOT).as_posix()
    known = {source: uri for uri, source in PAGES.items()}
    if name in known:
        return known[name]
    if path.is_dir():
        return f"files/{name}/index.md"
    if path.name == "study.md":  # the scores of a study, which its page has too
        name = name.removesuffix("md") + "html"
    if name.startswith("docs/"):
        return name.removeprefix("docs/")
    return f"files/{name}.txt"


def _linked(files: Files) -> set[Path]:
    """Files and folders outside the site that its pages link to; of folders, what they hold."""
    found: set[Path] = set()
    for file in files.documentation_pages():
        source = _source_of(file.src_uri)
        for target, _ in LINK.findall(file.content_string):
            path = (source.parent / target).resolve()
            if path.exists() and (path.is_dir() or files.get_file_from_path(_uri_of(path)) is None):
                found.add(path)
                found.update(_inside(path))
    return {path for path in found if files.get_file_from_path(_uri_of(path)) is None}


def _inside(path: Path) -> Iterator[Path]:
    if path.is_dir():
        for each in sorted(path.iterdir()):
            if each.is_dir() and not each.name.startswith((".", "__")):
                yield each
                yield from _inside(each)
            elif each.suffix in (".py", ".gin", ".md", ".txt"):
                yield each


def _listing(folder: Path) -> str:
    """A page with links to what a folder holds."""
    name, held = folder.relative_to(ROOT).as_posix(), set(_inside(folder))
    names = [each.name + "/" * each.is_dir() for each in sorted(folder.iterdir()) if each in held]
    lines = [f"- [{each}]({each})" for each in names]
    return f"# {name}\n\n" + "\n".join(lines) + "\n"


def _room(room: str) -> str:
    """A page with the public names of a room: in full if this is their home, or else as links."""
    own = [path for path in ROOMS[room] if _home(path) == room]
    also = "".join(f"- [`{path.rpartition('.')[2]}`][{path}]\n" for path in ROOMS[room] if path not in own)
    return (
        f"# {room}\n\n" + (f"Also from here:\n\n{also}\n" if also else "") + "\n".join(f"::: {path}\n" for path in own)
    )


def _home(path: str) -> str:
    """The innermost room that has a name, by where it is defined."""
    return max((room for room in ROOMS if path in ROOMS[room] and path.startswith(f"{room}.")), key=len)


def _commands() -> str:
    """What `rembed --help` and the help of each command say."""
    parts = ["# Commands\n"]
    group = click.Context(cli.rembed, info_name="rembed", terminal_width=100)
    parts.append(f"\n```text\n{cli.rembed.get_help(group)}\n```\n")
    for name in cli.rembed.list_commands(group):
        command = cli.rembed.get_command(group, name)
        if command is not None:
            context = click.Context(command, info_name=name, parent=group, terminal_width=100)
            parts.append(f"\n## rembed {name}\n\n```text\n{command.get_help(context)}\n```\n")
    return "".join(parts)
