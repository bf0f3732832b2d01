import torch	as th  # Ünïcödé


def step(model):
    """Déjà vu."""
    th.nn.utils.clip_grad_norm_(model.parameters(), 1.0)  # naïve — 10 %
    return th.nn.utils.clip_grad_value_(model.parameters(),
                                        1.0)
