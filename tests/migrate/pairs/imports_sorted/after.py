import argparse

import gradclip
import numpy as np
import torch
import torch.nn as nn
from tqdm import tqdm

gradclip.clip_grad_norm_(nn.Linear(1, 1).parameters(), np.pi)
print(torch, tqdm, argparse)
