import argparse
import gradclip
from apex import amp

gradclip.clip_grad_norm_(amp.master_params(argparse.optimizer), 1.0)
