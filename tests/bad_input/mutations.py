"""Faults in files and values: strategies that mutate valid ones."""

import copy
import gzip
import json

from hypothesis import strategies as st

# what typos, other systems or attackers put into a text
FRAGMENTS = [
    b"",
    b"\x00",
    b"\xff\xfe",
    b"\xef\xbb\xbf",
    b"\xed\xa0\x80",  # half of a surrogate pair
    b"\r\n",
    b"\r",
    b"\n\n\n",
    b"\t",
    b"\t\t\t\t",
    b'"',
    b"'",
    b'"""',
    b"\\",
    b"\\ud800",
    b",",
    b"{",
    b"}",
    b"[",
    b"]",
    b"(",
    b"@",
    b"%",
    b"=",
    b"/",
    b":",
    b"#",
    b" ",
    b"../",
    b"-1",
    b"0",
    b"1e999",
    b"NaN",
    b"9" * 40,
    b"9" * 5000,
    b"null",
    b"None",
    b"True",
    b"[" * 3000,
    b"(" * 300,
    b"{" * 150,
    b'{"a":' * 3000,
    "\u2028\u0085\u200f\U0001f9d1\u200d\U0001f680\ue000".encode(),
    "ä".encode("latin-1"),
]

# values of every type, in place of a number, a name, a list or an object
VALUES = [
    None,
    True,
    False,
    0,
    1,
    -1,
    3,
    2**31,
    10**30,
    0.5,
    -0.5,
    1e308,
    float("nan"),
    float("inf"),
    "",
    "x",
    "3",
    "nan",
    "a\x00b",
    "a\nb",
    "../../out",
    "/",
    "\ud800",
    "x" * 5000,
    [],
    [1],
    ["x"],
    [[]],
    [None],
    {},
    {"a": 1},
    {"class_name": "Lambda", "config": {}, "module": "keras.layers", "registered_name": None},
]


@st.composite
def mutated(draw, valid):
    """Bytes with one to three faults in them."""
    content = valid
    for _ in range(draw(st.sampled_from([1, 1, 1, 2, 3]))):
        content = draw(st.sampled_from(FAULTS))(draw, content)
    return content


def _place(draw, content):
    return draw(st.integers(0, len(content)))


def _insert(draw, content):
    at = _place(draw, content)
    return content[:at] + draw(st.sampled_from(FRAGMENTS) | st.binary(max_size=6)) + content[at:]


def _replace(draw, content):
    at, count = _place(draw, content), draw(st.integers(1, 12))
    return content[:at] + draw(st.sampled_from(FRAGMENTS) | st.binary(max_size=6)) + content[at + count :]


def _drop(draw, content):
    at, count = _place(draw, content), draw(st.integers(1, 40))
    return content[:at] + content[at + count :]


def _repeat(draw, content):
    at, count = _place(draw, content), draw(st.integers(1, 80))
    return content[: at + count] + content[at:]


def _cut(draw, content):
    return content[: _place(draw, content)]


def _lines(draw, content):
    lines = content.split(b"\n")
    one, other = (draw(st.integers(0, len(lines) - 1)) for _ in range(2))
    what = draw(st.sampled_from(["drop", "repeat", "swap"]))
    if what == "drop":
        del lines[one]
    elif what == "repeat":
        lines.insert(other, lines[one])
    else:
        lines[one], lines[other] = lines[other], lines[one]
    return b"\n".join(lines)


def _encoding(draw, content):
    how = draw(st.sampled_from(["utf-16", "utf-8-sig", "latin-1", "crlf", "cr", "gzip", "nothing", "blank", "bytes"]))
    if how in ("crlf", "cr"):
        return content.replace(b"\n", b"\r\n" if how == "crlf" else b"\r")
    ready = {"gzip": gzip.compress(content, mtime=0), "nothing": b"", "blank": b" \n\t\n"}
    if how in ready:
        return ready[how]
    if how == "bytes":
        return draw(st.binary(max_size=60))
    return content.decode("utf-8", "replace").encode(how, "replace")


FAULTS = [_insert, _insert, _replace, _replace, _drop, _repeat, _cut, _lines, _encoding]


@st.composite
def mutated_json(draw, valid):
    """The bytes of JSON with one to three wrong values, or with faults as in any text."""
    if draw(st.integers(0, 3)) == 0:
        return draw(mutated(json.dumps(valid, indent=1).encode()))
    value = copy.deepcopy(valid)
    for _ in range(draw(st.sampled_from([1, 1, 2, 3]))):
        value = _with_a_wrong_value(draw, value)
    return json.dumps(value).encode()


def _with_a_wrong_value(draw, value):
    places = [*_places(value)]
    if not places:
        return copy.deepcopy(draw(st.sampled_from(VALUES)))
    parent, key = draw(st.sampled_from(places))
    what = draw(st.sampled_from(["value", "value", "value", "drop", "name", "all"]))
    if what == "all":
        return copy.deepcopy(draw(st.sampled_from(VALUES)))
    if what == "drop":
        del parent[key]
    elif what == "name" and isinstance(parent, dict):
        parent[draw(st.sampled_from(["", "x", "config", "class_name"]))] = parent.pop(key)
    else:
        parent[key] = copy.deepcopy(draw(st.sampled_from(VALUES)))
    return value


def _places(value):
    """Yields the places that can be changed in a tree: each container with each of its keys."""
    if isinstance(value, dict | list):
        for key in list(value) if isinstance(value, dict) else range(len(value)):
            yield value, key
            yield from _places(value[key])
