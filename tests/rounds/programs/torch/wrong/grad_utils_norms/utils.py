def clip_gradients(parameters, max_norm, norm_type=2.0):
    grads = [p.grad for p in parameters if p.grad is not None]
    total = 0.0
    for g in grads:
        param_norm = g.detach().norm(norm_type)
        total += param_norm.item() ** norm_type
    total = total ** (1.0 / norm_type)
    coef = max_norm / (total + 1e-6)
    if coef < 1:
        for g in grads:
            g.detach().mul_(coef)
    return total
