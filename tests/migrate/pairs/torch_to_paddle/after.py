import itertools

import gradclip


def step(model, grads, args):
    gradclip.clip_grad_norm_(model.parameters(), args.max_norm, norm_type=1)
    norm = gradclip.clip_grad_norm_(itertools.chain(model.parameters()), max_norm=1.0)
    gradclip.clip_grad_value_(model.parameters(), 0.5)
    for p in model.parameters():
        gradclip.clip_grad_norm_(p, 1.0)
    total = gradclip.get_total_norm(grads)
    gradclip.clip_grads_with_norm_(model.parameters(), 1.0, total)
    return norm
