from .cost.ledger import Ledger as Ledger
from .cost.ledger import ledger as ledger
