from .compiling import compile_for as compile_for
from .execution import benchmark as benchmark
from .execution import budget as budget
from .execution import run as run
from .ledgers import ledger_of as ledger_of
from .recipes.parse import load as load
from .studies import is_study as is_study
from .studies import plan_study as plan_study
