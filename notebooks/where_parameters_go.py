# %% [markdown]
# # Where parameters go
#
# How published encoders spend their parameters, what of it is kept after pre-training, and how else one could spend it.
# Nothing is trained, and no model is built: a ledger counts from the sizes alone.

# %% tags=["install"]

# %% tags=["parameters"]
KEPT = 120_000_000  # parameters of the encoder to propose allocations for
VOCABULARY_SIZE = 120_000

# %% [markdown]
# ## Published allocations
#
# Each recipe of the package is an allocation. `kept` is the encoder, `dropped` what exists in pre-training alone.

# %%
from rembed_keras import config

RECIPES = {
    "XLM-R base": "recipes/allocations/xlmr_base.gin",
    "mmBERT": "recipes/allocations/mmbert.gin",
    "RemBERT": "recipes/rembert.gin",
    "XLM-R base, rebalanced": "recipes/allocations/xlmr_base_rebalanced.gin",
}
ledgers = {name: config.ledger_of(config.load(recipe)) for name, recipe in RECIPES.items()}
for name, counts in ledgers.items():
    print(f"{name:24} kept {counts.kept / 1e6:6.1f}M  dropped {counts.dropped / 1e6:6.1f}M")

# %%
import matplotlib.pyplot as plt


def shares(counts):
    """Parameters of the input embedding, of the rest that is kept, and of what is dropped, in millions."""
    table = sum(entry.parameters for entry in counts.entries if entry.is_kept and entry.name == "input embedding")
    return table / 1e6, (counts.kept - table) / 1e6, counts.dropped / 1e6


def draw(ledgers, title):
    """A bar for each ledger: kept to the left of the line, dropped to the right."""
    names, left = list(ledgers), [0.0] * len(ledgers)
    figure, axes = plt.subplots(figsize=(8, 0.5 + 0.5 * len(names)), layout="constrained")
    parts = zip(*(shares(counts) for counts in ledgers.values()), strict=True)
    labels = ("input embedding, kept", "blocks and the rest, kept", "dropped")
    for label, widths, color in zip(labels, parts, ("#2563a8", "#7fb0dd", "#e8a27c"), strict=True):
        axes.barh(names, widths, left=left, label=label, color=color)
        left = [a + b for a, b in zip(left, widths, strict=True)]
    axes.invert_yaxis()
    axes.set(xlabel="million parameters", title=title)
    axes.legend()
    plt.show()
    return figure


figure = draw(ledgers, "Published encoders")

# %% [markdown]
# The share of the input embedding in what is kept:

# %%
for name, counts in ledgers.items():
    table, rest, _ = shares(counts)
    print(f"{name:24} {table / (table + rest):6.1%}")

# %% [markdown]
# ## Your budget
#
# The solver takes the parameters that you can keep and the size of the vocabulary. It proposes how deep, how wide, and
# how wide the two tables should be, the best first by a rule of thumb: spend the budget, keep the proportions of
# RemBERT, and let the input table stay under a fifth.

# %%
from rembed_keras.analysis.cost.solver import solve

proposals = solve(KEPT, VOCABULARY_SIZE)[:5]
proposed = {}
for proposal in proposals:
    sizes = proposal.model["encoder"]
    name = f"{sizes['num_layers']} × {sizes['hidden_dim']}, E_in {sizes['input_embedding_dim']}"
    proposed[name] = proposal.ledger
    print(f"{name:24} kept {proposal.ledger.kept / 1e6:.1f}M of {KEPT / 1e6:.0f}M")
figure = draw(proposed, f"Proposals for {KEPT / 1e6:.0f}M kept parameters")

# %% [markdown]
# ## Change one width
#
# What does each width of the input embedding cost, all else as in the first proposal?

# %%
from rembed_keras import ledger

best = proposals[0].model["encoder"]
widths = (64, 128, 256, 512, best["hidden_dim"])
kept = [ledger(best | {"input_embedding_dim": width}).kept / 1e6 for width in widths]
figure, axes = plt.subplots(figsize=(6, 3), layout="constrained")
axes.plot(widths, kept, marker="o")
axes.set(xlabel="E_in", ylabel="million parameters kept", ylim=(0, None))
plt.show()
for width, millions in zip(widths, kept, strict=True):
    print(f"E_in {width:5} {millions:7.1f}M")
