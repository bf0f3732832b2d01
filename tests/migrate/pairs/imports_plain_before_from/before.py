import argparse
from apex import amp
from torch.nn.utils import clip_grad_norm_

clip_grad_norm_(amp.master_params(argparse.optimizer), 1.0)
