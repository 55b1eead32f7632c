"""How often a text uses the rows of an encoder's tables."""

import numpy as np

from rembed_keras.data.prepare.sources import find_source
from rembed_keras.data.tokenizers.protocol import AnyTokenizer
from rembed_keras.errors import UserError
from rembed_keras.interop.reallocation.low_rank import Tables, Usage

UNSEEN = 0.01  # share of all tokens that pieces have beside what is counted, each the same
FRAME = 2  # tokens around a text: [CLS] and [SEP]
MASKED = 0.03  # [MASK] for each token of a text where some are predicted; training has 4 times as many, to the same end


def check_rows(tokenizer: AnyTokenizer, rows: int) -> None:
    """Refuses a tokenizer that would read rows that there are none of.

    Raises:
        UserError: for a tokenizer of more pieces than rows.
    """
    if tokenizer.vocabulary_size > rows:
        raise UserError(f"the tokenizer has {tokenizer.vocabulary_size} pieces and the model {rows} rows")


def even_usage(tables: Tables, tokenizer: AnyTokenizer | None) -> Usage:
    """All rows equally often, but for [MASK].

    Args:
        tables: the encoder's.
        tokenizer: of an encoder that has a masked-LM head; None for one without.
    """
    usage = Usage.even(tables)
    if tokenizer is not None:
        usage.tokens[tokenizer.mask_id] += MASKED * len(usage.tokens)
    return usage


def usage_of(
    text_dir: str, tokenizer: AnyTokenizer, tables: Tables, has_positions: bool, has_head: bool = False
) -> Usage:
    """How often rows are used by the paragraphs of a text, each framed by [CLS] and [SEP].

    Args:
        text_dir: a source of text, see `find_source`.
        tokenizer: the encoder's.
        tables: the encoder's.
        has_positions: whether the first of the other tables is that of positions; segments count the same.
        has_head: whether the encoder has a masked-LM head, and so reads [MASK] in place of some tokens.

    Raises:
        UserError: for text that cannot be used, or a tokenizer of another size.
    """
    rows = tables.token.shape[0]
    check_rows(tokenizer, rows)
    counts, lengths = np.zeros(rows), np.zeros(tables.others[0].shape[0] + 1 if has_positions else 1)
    source = find_source(text_dir)
    found: set[str] = set()
    for language, paragraphs in source.by_language():
        found.add(language)
        for ids in tokenizer.encode_stream(paragraphs):
            np.add.at(counts, ids, 1)
            lengths[min(len(ids) + FRAME, len(lengths) - 1)] += 1
    source.check_found(found)
    counts[tokenizer.mask_id] += MASKED * counts.sum() * has_head
    counts[[tokenizer.cls_id, tokenizer.sep_id]] += lengths.sum()
    even = Usage.even(tables)
    tokens = (1 - UNSEEN) * counts / counts.sum() + UNSEEN / rows
    reached = lengths[::-1].cumsum()[::-1][1:]  # how many texts are longer than each position
    return Usage(tokens, (reached, *even.others[1:]) if has_positions else even.others)
