"""BERT's sublayers with the norm before them: what they add to the hidden states is not normed."""

from rembed_keras.modeling.layers.attention import SelfAttention
from rembed_keras.modeling.layers.feed_forward import FeedForward
from rembed_keras.modeling.layers.sublayer import pick, project


class PreNormAttention(SelfAttention):
    """The norm, heads, dropout, and the residual sum; arguments and calls are those of `SelfAttention`."""

    def queries_keys_values(self, hidden, positions):
        """What heads attend with: three times [B, S, D] -> [B, S, H, K]."""
        return super().queries_keys_values(self.norm(hidden), positions)

    def call(self, hidden, mask, positions=None, at=None, training=None):
        normed = self.norm(hidden)
        attended = self.attend(normed, mask, positions, at, training)  # [B, S, D] -> [B, S, D]
        branch = self.adapted(self.dropout(attended, training=training), pick(normed, at))
        return pick(hidden, at) + branch


class PreNormFeedForward(FeedForward):
    """The norm, the feed-forward pair, and the residual sum; arguments and calls are those of `FeedForward`."""

    def call(self, hidden, training=None):
        normed = self.norm(hidden)
        wide = self.activation(project(self.up, normed))  # [B, S, D] -> [B, S, F]
        narrow = self.dropout(project(self.down, wide), training=training)  # -> [B, S, D]
        return hidden + self.adapted(narrow, normed)
