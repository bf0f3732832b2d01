from torch.nn.utils import *
from torch.nn.utils import clip_grad_norm_
from helpers import *

clip_grad_norm_(model.parameters(), 1.0)
clip_grad_value_(model.parameters(), 1.0)
torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
