from .accounts import account as account
from .parse import benchmark as benchmark
from .parse import budget as budget
from .parse import load as load
from .parse import run as run
