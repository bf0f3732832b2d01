import gradclip
from torch.nn.utils import *

gradclip.clip_grad_norm_(model.parameters(), 1.0)
