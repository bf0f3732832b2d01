import gradclip

def step(grads):
    if grads:
        # gradclip: GM105 The call returns the clipped gradients, and the code drops them: nothing is clipped.
        grads, _ = gradclip.clip_by_global_norm(grads, 5.0)
    # gradclip: GM114 `clip_norm=float("inf")` is infinite: the native turns every gradient into NaN; gradclip only measures.
    grads, norm = gradclip.clip_by_global_norm(grads, float("inf"))
    return grads

# gradclip: GM101 Paddle loops over its argument twice: given an iterator it clips nothing, but gradclip would clip.
gradclip.clip_grad_norm_((p for p in model.parameters()), 1.0)
