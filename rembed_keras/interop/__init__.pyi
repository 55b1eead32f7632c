from .convert import convert as convert
from .convert import read_model as read_model
from .convert import write as write
from .convert import written_whole as written_whole
from .served_task import write_served_task as write_served_task
from .vocabulary import extend as extend
from .vocabulary import trim as trim
