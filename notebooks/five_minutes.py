# %% [markdown]
# # Five minutes
#
# From a list of texts to a trained encoder, and from that to a text classifier. Nothing is downloaded: the texts come
# with the package.

# %% tags=["install"]

# %% tags=["parameters"]
VOCABULARY_SIZE = 4000  # V, pieces of the tokenizer
TEXTS = 4000  # paragraphs to pre-train on
EPOCHS = 4  # passes over them
LABELED = 1500  # examples to fine-tune on
FINETUNE_EPOCHS = 5

# %% [markdown]
# ## A trained encoder
#
# One comes with the package: 5.6M parameters, trained for 80 minutes on software help in 32 languages.

# %%
from rembed_keras import Encoder

trained = Encoder.from_preset("rembed_small")
sentences = ["Opens a file.", "Rotates the selected picture.", "Insert a page break before the chapter."]
for sentence, cosine in zip(sentences, trained.similarity("Open the file.", sentences)[0], strict=True):
    print(f"{cosine:.2f}  {sentence}")

# %% [markdown]
# ## Texts
#
# The rest makes one like it, smaller, from nothing.
# The help pages of LibreOffice, one paragraph a line.

# %%
import gzip

import numpy as np

from rembed_keras.data import sample

texts = gzip.decompress((sample.text_folder() / "en.txt.gz").read_bytes()).decode("utf-8").splitlines()[:TEXTS]
print(f"{len(texts):,} paragraphs, {sum(map(len, texts)):,} characters")
print(texts[100])

# %% [markdown]
# ## Tokenizer and encoder
#
# The input embedding is narrow, the output embedding is wide. The output embedding is part of the pre-training head,
# which is dropped.

# %%
from rembed_keras import MaskedLM, TextClassifierPreprocessor, Tokenizer, ledger

tokenizer = Tokenizer.train(texts, vocabulary_size=VOCABULARY_SIZE)
encoder = Encoder(
    VOCABULARY_SIZE,
    num_layers=2,
    num_heads=2,
    hidden_dim=128,
    intermediate_dim=512,
    input_embedding_dim=64,
    max_sequence_length=64,
)
encoder.preprocessor = TextClassifierPreprocessor(tokenizer)
model = MaskedLM(encoder, output_embedding_dim=256)
counts = ledger(model)
print(f"{counts.kept:,} parameters are kept, {counts.dropped:,} are dropped after pre-training")

# %% [markdown]
# ## Pre-train
#
# `fit` tokenizes, masks and trains. The loss is in nats per masked token: of `VOCABULARY_SIZE` equally likely pieces it
# would be their logarithm.

# %%
model.compile("adam")
model.optimizer.learning_rate = 1e-3
history = model.fit(texts, batch_size=64, epochs=EPOCHS, verbose=2)
print(
    f"at random {np.log(VOCABULARY_SIZE):.2f}, after training {history.history['loss'][-1]:.2f} nats per masked token"
)

# %%
for fill in model.fill_mask("Click the [MASK] to open the file.", top=5):
    print(f"{fill.probability:.3f}  {fill.token}")

# %% [markdown]
# ## Drop the head, classify
#
# `drop_heads` gives the encoder, with the same weights. The task: which application is a paragraph about?

# %%
from rembed_keras import Classifier


def labeled(file):
    """Texts and labels of a file of the embedded task."""
    lines = gzip.decompress((sample.topics_folder() / file).read_bytes()).decode("utf-8").splitlines()[1:]
    return zip(*(line.split("\t") for line in lines), strict=True)


train_texts, train_labels = (list(column)[:LABELED] for column in labeled("train.en.tsv.gz"))
test_texts, test_labels = (list(column) for column in labeled("test.en.tsv.gz"))
names = sorted({*train_labels, *test_labels})
y, test_y = ([names.index(label) for label in column] for column in (train_labels, test_labels))

classifier = Classifier(model.drop_heads(), num_classes=len(names))
classifier.compile("adam")
classifier.optimizer.learning_rate = 5e-4
classifier.fit(train_texts, y, batch_size=32, epochs=FINETUNE_EPOCHS, verbose=2)
accuracy = classifier.evaluate(test_texts, np.array(test_y), verbose=0, return_dict=True)["accuracy"]
majority = max(test_y.count(label) for label in set(test_y)) / len(test_y)
print(f"accuracy {accuracy:.3f}; the majority class would give {majority:.3f}")

# %%
questions = ["How do I sum the cells of a column?", "Insert a page break before the chapter."]
for question, logits in zip(questions, classifier.predict(questions, verbose=0), strict=True):
    print(f"{names[int(np.argmax(logits))]:10} {question}")

# %% [markdown]
# ## Save and open
#
# A preset is a folder with weights, configuration and tokenizer.

# %%
import tempfile

folder = tempfile.mkdtemp()
classifier.save_to_preset(folder)
again = Classifier.from_preset(folder)
print(np.abs(again.predict(questions, verbose=0) - classifier.predict(questions, verbose=0)).max())

# %% [markdown]
# ## The same from the trained encoder
#
# `rembed_small` has three times the layers and read far more text, in 32 languages: it knows something of those that it
# gets no labels of.

# %%
better = Classifier.from_preset("rembed_small", num_classes=len(names))
better.compile("adam")
better.optimizer.learning_rate = 5e-4
better.fit(train_texts, y, batch_size=32, epochs=FINETUNE_EPOCHS, verbose=2)
accuracy = better.evaluate(test_texts, np.array(test_y), verbose=0, return_dict=True)["accuracy"]
print(f"English: accuracy {accuracy:.3f}")
german_texts, german_labels = (list(column) for column in labeled("test.de.tsv.gz"))
german_y = np.array([names.index(label) for label in german_labels])
accuracy = better.evaluate(german_texts, german_y, verbose=0, return_dict=True)["accuracy"]
print(f"German, without a label in German: accuracy {accuracy:.3f}")
