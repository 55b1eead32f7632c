from .execution import benchmark as benchmark
from .execution import budget as budget
from .execution import run as run
from .ledgers import ledger_of as ledger_of
from .recipes.parse import load as load
