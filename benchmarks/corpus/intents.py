"""What one may say to a house, by intent: sentences drawn from Home Assistant's grammars, which volunteers wrote in
each language by itself, and which are therefore not translations of one another.

A grammar has templates such as `turn (on|off) [the] {name}`: one of several, what may be left out, and a word of a
list. Lists that a household would fill get short names of emoji, of Unicode's CLDR, which are real words in
every language: "turn on the television". Such a sentence may be odd; what it asks for is plain.
"""

import json
import random
import re
import tarfile
import zipfile
from collections.abc import Iterator
from functools import cache
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import sources
from labelled import Example

SENTENCES = 60  # of an intent, at most
ROUNDS = 60  # draws from each template
INTENTS = 30  # that a language needs
# the split of an intent's templates, in their order: seven, one and two in ten, and of two one to learn and one to be
# scored on
TURNS = ("train", "test", "train", "dev", "train", "train", "test", "train", "train", "train")

DEVICES = "💡📺📻🎥🚪🛏🛋🚿🛁🖨💻📷🔔🧺🪟🕯"
PLACES = "🏠🏡🏢🏨🏫🏰🏥🏭⛪🕌"
GOODS = "🍎🍌🍇🍞🧀🥚🥛🍯🍅🥕🍫🍕"
EMOJI = {"name": DEVICES, "area": PLACES, "floor": PLACES, "zone": PLACES}  # by list; goods for all others
CLDR = {  # where it names a language otherwise; what a variant does not have is in the one before it
    "nb": ("no",),
    "pt": ("pt", "pt-PT"),
    "pt-BR": ("pt",),
    "zh-CN": ("zh",),
    "zh-HK": ("zh-Hant", "zh-Hant-HK"),
    "zh-TW": ("zh-Hant",),
}

TOKEN = re.compile(r"[\[\]()|;]|\{[^{}]*\}|<[^<>]*>|[^\\\[\](){}<>|;]+")


class OneOf(NamedTuple):
    """Sequences of which one is said."""

    ways: list


class AnyOrder(NamedTuple):
    """Sequences that are all said, in any order."""

    parts: list


@cache
def parsed(template: str) -> list:
    """A template as a sequence of texts, `<rules>`, `{lists}`, `OneOf` and `AnyOrder`."""
    tokens = TOKEN.findall(template)
    if "".join(tokens) != template:
        raise ValueError(f"not a template: {template}")
    sequence, rest = _group(tokens[::-1])
    if rest:
        raise ValueError(f"brackets do not match: {template}")
    return sequence


def _group(tokens):
    """Reads tokens, the last one first, up to a bracket that closes; what was read, and what was not."""
    branches, any_order = [[]], False
    while tokens and (token := tokens.pop()) not in ("]", ")"):
        if token in ("|", ";"):
            branches.append([])
            any_order = token == ";"
        elif token in ("[", "("):
            inner, tokens = _group(tokens)
            branches[-1] += inner if token == "(" else [OneOf([inner, []])]
        else:
            branches[-1].append(token)
    if len(branches) == 1:
        return branches[0], tokens
    return [AnyOrder(branches) if any_order else OneOf(branches)], tokens


class Grammar:
    """The grammar of a language.

    Args:
        data: as its file has it.
        words: by list, what fills lists that the grammar leaves to a household; "" for those not named.
    """

    def __init__(self, data: dict, words: dict[str, list[str]]):
        self.rules, self.lists, self.words = data["expansion_rules"], data["lists"], words

    def draw(self, part: list | tuple | str, rng: random.Random) -> str:
        """One sentence of a parsed template."""
        match part:
            case list():
                return "".join(self.draw(inner, rng) for inner in part)
            case OneOf(ways):
                return self.draw(rng.choice(ways), rng)
            case AnyOrder(parts):
                return "".join(f" {self.draw(inner, rng)} " for inner in rng.sample(parts, len(parts)))
            case str() if part.startswith("<"):
                return self.draw(parsed(self.rules[part[1:-1]]), rng)
            case str() if part.startswith("{"):
                return self._word(part[1:-1].split(":")[0], rng)
        return part

    def _word(self, name, rng):
        known = self.lists.get(name, {})
        if "values" in known:
            value = rng.choice(known["values"])
            return self.draw(parsed(value["in"] if isinstance(value, dict) else value), rng)
        if "range" in known:
            numbers = known["range"]
            return str(rng.randrange(int(numbers["from"]), int(numbers["to"]) + 1, int(numbers.get("step", 1))))
        return rng.choice(self.words.get(name, self.words[""]))


def commands(root: Path) -> Iterator[Example]:
    """Sentences labelled with their intent, Apache-2.0 and Unicode-3.0; split by template."""
    names = _short_names(root)
    for code, data in _grammars(root):
        language = sources.language_name(code)
        templates = {
            intent: {template for group in known["data"] for template in group["sentences"]}
            for intent, known in sorted(data["intents"].items())
        }
        templates = {intent: found for intent, found in templates.items() if found}
        if language is None or len(templates) < INTENTS:
            continue
        named = {sign: name for variant in CLDR.get(code, (code,)) for sign, name in names[variant].items()}
        words = {name: [named[sign] for sign in signs if sign in named] for name, signs in {**EMOJI, "": GOODS}.items()}
        grammar = Grammar(data, words)
        for intent, found in templates.items():
            drawn = _drawn(grammar, found, random.Random(f"{language} {intent}"))
            for split, text in islice(drawn, SENTENCES):
                yield Example(language, split, text, intent)


def _drawn(grammar, templates, rng):
    """Yields (split, text) of an intent, no text twice: one of each template, round after round."""
    ordered = sorted(templates, key=lambda template: sources.share(template, 1 << 64))
    seen = {""}
    for _ in range(ROUNDS):
        for i, template in enumerate(ordered):
            text = sources.one_line(grammar.draw(parsed(template), rng))
            if text not in seen:
                seen.add(text)
                yield TURNS[i % len(TURNS)], text


def _grammars(root):
    """Yields (language, grammar), as the package has them."""
    (path,) = (root / "pypi").glob("home_assistant_intents-*.whl")
    with zipfile.ZipFile(path) as wheel:
        for name in sorted(wheel.namelist()):
            if name.startswith("home_assistant_intents/data/"):
                yield Path(name).stem, json.loads(wheel.read(name))


def _short_names(root):
    """Short names of emoji, by CLDR's names of languages."""
    (path,) = (root / "npm").glob("cldr-annotations-full-*.tgz")
    wanted = {*GOODS, *(sign for signs in EMOJI.values() for sign in signs)}
    names = {}
    with tarfile.open(path) as archive:
        for member in archive:
            if member.name.endswith("/annotations.json"):
                known = json.load(archive.extractfile(member))["annotations"].get("annotations", {})
                found = {sign: known[sign]["tts"][0] for sign in sorted(wanted & known.keys()) if "tts" in known[sign]}
                names[Path(member.name).parent.name] = found
    return names
