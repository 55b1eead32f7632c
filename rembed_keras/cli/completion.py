"""Completion in a shell: commands and options by click, recipes and their knobs by what their files say."""

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import click
from click.shell_completion import CompletionItem, get_completion_class

from rembed_keras.errors import UserError

PACKAGE = Path(__file__).parent.parent
SHELLS = click.Choice(["bash", "zsh", "fish"])
# a knob is not finished where its name is: what of a shell's script becomes what; fish knows by itself
NO_SPACE = {
    "bash": (
        "    return 0\n",
        '    [[ ${#COMPREPLY[@]} -eq 1 && "${COMPREPLY[0]}" == *= ]] && compopt -o nospace\n\n    return 0\n',
    ),
    "zsh": (
        "_describe -V unsorted completions_with_descriptions -U\n",
        (
            "local -a ending; [[ $completions_with_descriptions[1] == *=:* ]] && ending=(-S '')\n"
            '        _describe -V unsorted completions_with_descriptions -U "${ending[@]}"\n'
        ),
    ),
}


@click.command()
@click.argument("shell", type=SHELLS)
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print what makes a SHELL complete commands, options, recipes and their knobs.

    In ~/.bashrc: eval "$(rembed completion bash)". In ~/.zshrc: eval "$(rembed completion zsh)". In
    ~/.config/fish/completions/rembed.fish: rembed completion fish | source.
    """
    kind = get_completion_class(shell)
    if kind is None:
        raise UserError(f"this version of click completes nothing in {shell}: install another")
    script = kind(ctx.find_root().command, {}, "rembed", "_REMBED_COMPLETE").source()
    click.echo(script.replace(*NO_SPACE[shell]) if shell in NO_SPACE else script)


def recipes(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Files, and the recipes of this package, which may be named from anywhere."""
    names = {
        str(path.relative_to(root)) for root in (PACKAGE.parent, PACKAGE) for path in root.glob("recipes/**/*.gin")
    }
    own = [CompletionItem(name) for name in sorted(names) if name.startswith(incomplete)]
    return own if own and incomplete else [*files(incomplete), *own]


def files(incomplete: str) -> list[CompletionItem]:
    """Files and folders, as the shell completes them."""
    return [CompletionItem(incomplete, type="file")]


def knobs(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The knobs of the recipe that is named, those that are given already left out; files for the value of one.

    Bash takes such a value for a word of its own, after the word =.
    """
    words = ctx.params.get(parameter.name or "") or ()
    if words and (words[-1] == "=" or ("=" not in words[-1] and words[-2:-1] != ("=",))):
        return files(incomplete)
    given = {each.partition("=")[0] for each in words}
    found = [(name, about) for name, about in _knobs(ctx.params) if name not in given]
    return [CompletionItem(f"{name}=", help=about) for name, about in found if f"{name}=".startswith(incomplete)]


def _knobs(given: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yields the knobs of the recipe among a command's parameters and what is said of them; none if it is not read."""
    from rembed_keras.config.recipes.parse import read

    with contextlib.suppress(UserError, OSError, TypeError):
        for name, binding in sorted(read(given.get("recipe") or "", given.get("allow_import") or ()).macros.items()):
            yield name, binding.comment
