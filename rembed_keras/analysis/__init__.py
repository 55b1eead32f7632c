"""What an encoder costs and where: accounts that need no model to be built."""

from rembed_keras.analysis.ledger import Ledger, ledger

__all__ = ["Ledger", "ledger"]
