from .sink import Sink as Sink
from .sink import Watched as Watched
from .tensorboard import TensorBoard as TensorBoard
