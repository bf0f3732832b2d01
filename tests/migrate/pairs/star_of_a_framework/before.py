from torch.nn.utils import *

clip_grad_norm_(model.parameters(), 1.0)
