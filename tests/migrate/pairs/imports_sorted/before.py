import argparse

import numpy as np
import torch
import torch.nn as nn
from tqdm import tqdm

nn.utils.clip_grad_norm_(nn.Linear(1, 1).parameters(), np.pi)
print(torch, tqdm, argparse)
