from .figure import draw_layers as draw_layers
from .probing import LinearProbe as LinearProbe
from .probing import fit_probe as fit_probe
from .similarity import linear_cka as linear_cka
from .tokens import mean_of_tokens as mean_of_tokens
from .tokens import token_cosines as token_cosines
