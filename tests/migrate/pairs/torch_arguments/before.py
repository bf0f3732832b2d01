import itertools

import torch.nn as nn
from apex import amp


def clip(encoder, decoder, optimizer, args):
    nn.utils.clip_grad_norm_(itertools.chain(encoder.parameters()), 1.0)
    nn.utils.clip_grad_norm_(filter(lambda p: p.requires_grad, encoder.parameters()), max_norm=1)
    nn.utils.clip_grad_norm_([p for p in encoder.parameters() if p.grad is not None], args.max_norm, 1)
    nn.utils.clip_grad_norm_((p for p in encoder.parameters()), 1.0, norm_type=float("inf"))
    nn.utils.clip_grad_norm_(amp.master_params(optimizer), 1.0, 2, True, foreach=False)
    nn.utils.clip_grad_norm_(
        encoder.parameters(),  # all of it
        # a limit from the command line
        max_norm = args.max_norm ,
        error_if_nonfinite=True,
    )
    nn.utils.clip_grad_value_(encoder.parameters(), args.value, foreach=True)
    for group in optimizer.param_groups:
        nn.utils.clip_grad_norm_(group["params"], 1.0)
    (nn.utils
        .clip_grad_norm_)(encoder.parameters(), 1.0)
    (nn  # why not
        .utils.  # here too
        clip_grad_norm_)(encoder.parameters(), 1.0)
