"""Right programs of PyTorch for ``gradclip doctor``: the last argument names one."""

from __future__ import annotations

import contextlib
import functools
import sys

import torch
from on_torch import regression

import gradclip
from gradclip.backends.torch import step_pre_hook
from gradclip.dialects.torch import clip_grad_norm


def right_accumulation() -> None:
    """Right: one clip after four backward passes."""
    model, optimizer, loss = regression()
    for _ in range(6):
        for _ in range(4):
            (loss() / 4).backward()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0, error_if_nonfinite=True)
        assert norm > 0
        optimizer.step()
        optimizer.zero_grad()


def right_by_hand() -> None:
    """Right: the usual clip, written out; it writes only where the norm is above the limit."""
    model, optimizer, loss = regression()
    for step in range(6):
        optimizer.zero_grad()
        (loss() * (0.001 if step % 2 else 1.0)).backward()
        total = torch.linalg.vector_norm(torch.stack([p.grad.norm() for p in model.parameters()]))
        if total > 1.0:
            for parameter in model.parameters():
                parameter.grad.mul_(1.0 / total)
        optimizer.step()


def right_bounded_critic() -> None:
    """Right: the critic's parameters are bounded after each step, as for the Wasserstein distance, and nothing clips."""
    torch.manual_seed(0)
    model, critic, noise = torch.nn.Linear(4, 2), torch.nn.Linear(2, 1), torch.randn(64, 4)
    optimizer, other = (torch.optim.RMSprop(x.parameters(), lr=0.001) for x in (model, critic))
    for _ in range(6):
        other.zero_grad()
        (critic(model(noise).detach()).mean() - critic(noise[:, :2]).mean()).backward()
        other.step()
        for parameter in critic.parameters():
            parameter.data.clamp_(-0.01, 0.01)
        optimizer.zero_grad()
        (-critic(model(noise)).mean()).backward()
        optimizer.step()


def right_switched_off() -> None:
    """Right: the clip is a setting, and off."""
    model, optimizer, loss = regression()

    def clip(limit: float) -> None:
        if limit:
            torch.nn.utils.clip_grad_norm_(model.parameters(), limit)

    for _ in range(6):
        optimizer.zero_grad()
        loss().backward()
        clip(0.0)
        optimizer.step()


def right_closure() -> None:
    """Right: LBFGS asks for the gradients several times, and each time they are clipped."""
    model, _, loss = regression()
    optimizer = torch.optim.LBFGS(model.parameters(), lr=0.1, max_iter=3)

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        value = loss()
        value.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        return value

    for _ in range(6):
        optimizer.step(closure)


def right_compiled() -> None:
    """Right: a compiled function clips, which the doctor runs eagerly."""
    model, optimizer, loss = regression()

    @torch.compile(backend="eager")
    def backward_and_clip() -> None:
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)

    for _ in range(6):
        optimizer.zero_grad()
        loss().backward()
        backward_and_clip()
        optimizer.step()


def right_closure_new() -> None:
    """Right: a closure puts clipped gradients in the place of the others."""
    model, _, loss = regression()
    optimizer = torch.optim.LBFGS(model.parameters(), lr=0.1, max_iter=3)

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        value = loss()
        value.backward()
        grads = gradclip.clip([p.grad for p in model.parameters()], clip_grad_norm(1.0)).grads
        for parameter, grad in zip(model.parameters(), grads, strict=True):
            parameter.grad = grad
        return value

    for _ in range(6):
        optimizer.step(closure)


def right_frozen() -> None:
    """Right: a frozen layer, which has no gradient, is given to the clip too."""
    model, _, loss = regression()
    model[0].requires_grad_(False)
    optimizer = torch.optim.SGD(model[2].parameters(), lr=0.01)
    for _ in range(6):
        optimizer.zero_grad()
        loss().backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        gradclip.clip_grad_norm_(model.parameters(), float("inf"))
        optimizer.step()


def right_hooks() -> None:
    """Right: a hook clips each gradient before it is written, and another one after it."""
    model, optimizer, loss = regression()

    def clamp(parameter: torch.Tensor) -> None:
        parameter.grad.clamp_(-1, 1)

    model[0].weight.register_hook(lambda grad: grad.clamp(-1, 1))
    for parameter in (model[0].bias, *model[2].parameters()):
        parameter.register_post_accumulate_grad_hook(clamp)
    for _ in range(6):
        optimizer.zero_grad()
        loss().backward()
        optimizer.step()


def right_in_backward() -> None:
    """Right: a hook clips and steps each parameter during the backward pass."""
    model, _, loss = regression()
    optimizers = {p: torch.optim.SGD([p], lr=0.01) for p in model.parameters()}
    for parameter in model.parameters():

        def clip_and_step(p: torch.Tensor) -> None:
            torch.nn.utils.clip_grad_norm_([p], 1.0)
            optimizers[p].step()
            optimizers[p].zero_grad()

        parameter.register_post_accumulate_grad_hook(clip_and_step)
    for _ in range(6):
        loss().backward()


def right_loop() -> None:
    """Right: a backward pass, a clip, a step."""
    model, optimizer, loss = regression()
    for _ in range(6):
        optimizer.zero_grad()
        loss().backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()


def right_measured() -> None:
    """Right: an infinite limit only measures."""
    model, optimizer, loss = regression()
    norms = []
    for _ in range(6):
        optimizer.zero_grad()
        loss().backward()
        norms.append(torch.nn.utils.clip_grad_norm_(model.parameters(), float("inf")))
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()


def right_own() -> None:
    """Right: gradclip's functions, in place and with new gradients."""
    model, optimizer, loss = regression()
    for step in range(6):
        optimizer.zero_grad()
        loss().backward()
        if step % 2:
            gradclip.clip_(model.parameters(), clip_grad_norm(1.0))
        else:
            grads = gradclip.clip([p.grad for p in model.parameters()], clip_grad_norm(1.0)).grads
            for parameter, grad in zip(model.parameters(), grads, strict=True):
                parameter.grad = grad
        optimizer.step()


def right_raised() -> None:
    """Right: a step that raises does not count; later steps do."""
    model, optimizer, loss = regression()
    for step in range(7):

        def closure(step: int = step) -> torch.Tensor:
            optimizer.zero_grad()
            value = loss()
            value.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            if step == 2:
                raise MemoryError
            return value

        with contextlib.suppress(MemoryError):
            optimizer.step(closure)


def right_scaler() -> None:
    """Right: unscale, clip, step; a step with an infinite gradient is left out."""
    model, optimizer, loss = regression()
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    for step in range(6):
        optimizer.zero_grad()
        scaler.scale(loss() * (float("inf") if step == 2 else 1.0)).backward()
        scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()


def right_slot() -> None:
    """Right: gradclip's hook clips inside the step."""
    _, optimizer, loss = regression()
    optimizer.register_step_pre_hook(step_pre_hook(clip_grad_norm(1.0)))
    for _ in range(6):
        optimizer.zero_grad()
        loss().backward()
        optimizer.step()


def right_two_optimizers() -> None:
    """Right: two networks with an optimizer each, as in a GAN."""
    model, optimizer, loss = regression()
    critic, real = torch.nn.Linear(1, 1), 3 * torch.randn(64, 1)
    other = torch.optim.Adam(critic.parameters(), lr=0.01)
    fake = functools.partial(model, torch.randn(64, 4))
    for _ in range(6):
        other.zero_grad()
        (critic(fake()) - critic(real)).mean().backward()
        torch.nn.utils.clip_grad_norm_(critic.parameters(), 1.0)
        other.step()
        optimizer.zero_grad()
        (-critic(fake()).mean() + loss()).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()


def right_sparse_beside() -> None:
    """Right: an embedding's sparse gradients, which torch's clips refuse, have an optimizer of their own."""
    torch.manual_seed(0)
    embedding, head = torch.nn.Embedding(20, 4, sparse=True), torch.nn.Linear(4, 1)
    sparse = torch.optim.SparseAdam(list(embedding.parameters()), lr=0.01)
    optimizer = torch.optim.SGD(head.parameters(), lr=0.01)
    for _ in range(6):
        sparse.zero_grad()
        optimizer.zero_grad()
        head(embedding(torch.randint(0, 20, (16,)))).square().mean().backward()
        torch.nn.utils.clip_grad_norm_(head.parameters(), 0.1)
        sparse.step()
        optimizer.step()


def right_small_limit() -> None:
    """Right so far: the first few steps are clipped to less than a tenth. In ten steps it is GD302."""
    model, optimizer, loss = regression(noise=1000)
    for _ in range(10):
        optimizer.zero_grad()
        loss().backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()


def right_limit_times_scale() -> None:
    """Right: the limit is multiplied by the scale that the gradients still have."""
    model, optimizer, loss = regression()
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    for _ in range(6):
        optimizer.zero_grad()
        scaler.scale(loss()).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5 * scaler.get_scale())
        scaler.step(optimizer)
        scaler.update()


if __name__ == "__main__":
    globals()[sys.argv[-1]]()
