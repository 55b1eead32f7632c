from .accounts import account as account
from .bind import benchmark as benchmark
from .bind import budget as budget
from .bind import run as run
from .parse import load as load
