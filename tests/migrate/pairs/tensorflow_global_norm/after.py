import gradclip


def step(tape, loss, variables, optimizer, clip_norm):
    grads = tape.gradient(loss, variables)
    grads, _ = gradclip.clip_by_global_norm(grads, clip_norm)
    clipped, norm = gradclip.clip_by_global_norm(t_list=grads, clip_norm=7.0, name="clip")
    grads = gradclip.clip_by_global_norm(clipped, 6.0)[0]
    known = gradclip.global_norm(grads)
    grads, _ = gradclip.clip_by_global_norm(grads, 5.0, use_norm=known)
    optimizer.apply_gradients(zip(grads, variables))
    return norm
