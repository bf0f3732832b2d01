import gradclip


def step(optimizer, loss, clip):
    gvs = optimizer.compute_gradients(loss)
    gvs = [(gradclip.clip_by_norm(g, clip), v) for g, v in gvs]
    gvs = [(gradclip.clip_by_norm(g, 2.0) if g is not None else None, v) for g, v in gvs]
    for i, (g, v) in enumerate(gvs):
        if g is not None:
            gvs[i] = (gradclip.clip_by_norm(g, clip), v)
    capped = [(gradclip.clip_by_value(grad, -1., 1.), var) for grad, var in gvs]
    grads, variables = zip(*gvs)
    grads = [None if g is None else gradclip.clip_by_value(g, -clip, clip) for g in grads]
    grads = [gradclip.clip_by_norm(t=g, clip_norm=clip, axes=[0]) for g in grads]
    return optimizer.apply_gradients(capped), optimizer.apply_gradients(zip(grads, variables))
