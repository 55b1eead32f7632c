from .ml_flow import MLflow as MLflow
from .sink import Sink as Sink
from .sink import Watched as Watched
from .tensorboard import TensorBoard as TensorBoard
from .weights_and_biases import WeightsAndBiases as WeightsAndBiases
