"""Impossible budgets and malformed command lines."""

from hypothesis import given
from hypothesis import strategies as st

from tests.bad_input.attempts import attempt, attempts

NUMBERS = [
    "0",
    "-1",
    "1",
    "20k",
    "278M",
    "1e30B",
    "nan",
    "inf",
    "infM",
    "x",
    "",
    "1.5",
    "9" * 400,
    "²",
    "0x10",
    "1_0",
    "M",
]
WIDTHS = ["64,128", "0", "-64", "1", "64,,", "a", "", "1e3", "9" * 5000, "64;128"]
SPANS = ["25..60", "60..25", "0..0", "..", "1", "nan..nan", "inf..inf", "1e-300..1e300", "25..", "a..b"]


@st.composite
def budgets(draw):
    arguments = ["solve", f"--kept={draw(st.sampled_from(NUMBERS))}", f"--vocabulary={draw(st.sampled_from(NUMBERS))}"]
    options = {
        "total": NUMBERS,
        "e-in": WIDTHS,
        "aspect": SPANS,
        "sequence-length": NUMBERS,
        "show": NUMBERS,
        "block": ["PostNorm", "PreNorm", "x"],
        "out": ["out.gin", "/", "", "no/where", "x" * 300, "\udcff"],
    }
    names = draw(st.lists(st.sampled_from(sorted(options)), max_size=2, unique=True))
    return [*arguments, *(f"--{name}={draw(st.sampled_from(options[name]))}" for name in names)]


@attempts(30)
@given(budgets())
def test_impossible_budgets(arguments):
    attempt(arguments)


@attempts(50)
@given(
    st.lists(
        st.sampled_from(
            [
                "run",
                "inspect",
                "solve",
                "prepare",
                "convert",
                "trim",
                "extend",
                "predict",
                "report",
                "benchmark",
                "-h",
                "--version",
            ]
        )
        | st.sampled_from(["--json", "--from", "--to=tf1", "--", "-", "--kept", "--text", "--task", "x", ""])
        | st.text(max_size=5),
        min_size=1,  # without any it shows its help
        max_size=4,
    )
)
def test_words_that_are_not_a_command(words):
    attempt(words)
