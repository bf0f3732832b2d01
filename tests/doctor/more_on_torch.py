"""More programs of PyTorch for ``gradclip doctor``: steps, zeros and norms. ``# <- GD104`` marks the line of each finding."""

from __future__ import annotations

import math
import sys

import torch
from on_torch import regression


def after_hooks() -> None:
    """Hooks step in the backward pass, and a clip after it gets nothing."""
    model, _, loss = regression()
    optimizers = {p: torch.optim.SGD([p], lr=0.01) for p in model.parameters()}
    for parameter in model.parameters():

        def step(p: torch.Tensor) -> None:
            torch.nn.utils.clip_grad_norm_([p], 1.0)
            optimizers[p].step()
            optimizers[p].zero_grad()

        parameter.register_post_accumulate_grad_hook(step)
    for _ in range(7):
        loss().backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)  # <- GD114


def before_the_closure() -> None:
    """LBFGS makes the gradients again, and the clip is for nothing."""
    model, _, loss = regression()
    optimizer = torch.optim.LBFGS(model.parameters(), lr=0.1, max_iter=3)

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        value = loss()
        value.backward()
        return value

    for _ in range(6):
        closure()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)  # <- GM130
        optimizer.step(closure)


def diverges() -> None:
    """The learning rate is far too high, and nothing clips."""
    torch.manual_seed(0)
    model, x = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Linear(8, 1)), torch.randn(64, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=3.0)
    for _ in range(6):
        optimizer.zero_grad()
        (model(x) - 3).square().mean().backward()
        optimizer.step()  # <- GD205


def nan_without_a_clip() -> None:
    """A NaN comes from nowhere: no limit would have helped."""
    _, optimizer, loss = regression()
    for step in range(6):
        optimizer.zero_grad()
        (loss() * (float("nan") if step == 3 else 1.0)).backward()
        optimizer.step()  # <- GD101, GD201


def order_of_a_flag() -> None:
    """The third argument is the order of the norm, and it gets the value of the fourth."""
    model, optimizer, loss = regression()
    for _ in range(6):
        optimizer.zero_grad()
        loss().backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 5.0, True)  # <- GM138
        optimizer.step()


def no_zero_grad() -> None:
    """The gradients are never removed; the limit would be called too low."""
    model, optimizer, loss = regression(noise=100)
    for _ in range(6):
        loss().backward()  # <- GM132
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.001)
        optimizer.step()


def no_zero_grad_without_a_clip() -> None:
    """The gradients are never removed, and nothing clips."""
    _, optimizer, loss = regression()
    for _ in range(6):
        loss().backward()  # <- GM132
        optimizer.step()  # <- GD101


def one_pass() -> None:
    """One pass writes two models' gradients, and the clip has those of one."""
    model, optimizer, loss = regression()
    other, x = torch.nn.Linear(4, 1), torch.randn(64, 4)
    second = torch.optim.SGD(other.parameters(), lr=0.01)
    for _ in range(6):
        optimizer.zero_grad()
        second.zero_grad()
        (loss() + other(x).square().mean()).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        second.step()  # <- GD101


def other_model() -> None:
    """The optimizer has the parameters of a copy."""
    model, _, loss = regression()
    copy, _, _ = regression()
    optimizer = torch.optim.SGD(copy.parameters(), lr=0.01)
    for _ in range(6):
        optimizer.zero_grad()
        loss().backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()  # <- GD112


def scaled_far() -> None:
    """The gradients still have the loss scale: a limit from these norms would be wrong."""
    model, optimizer, loss = regression()
    scaler = torch.amp.GradScaler("cpu", init_scale=65536.0)
    for _ in range(6):
        optimizer.zero_grad()
        scaler.scale(loss()).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)  # <- GM107
        scaler.step(optimizer)
        scaler.update()


def stepped_by_hand() -> None:
    """The script steps by itself a tensor that no optimizer, no model and no clip has."""
    torch.manual_seed(0)
    weight, x = torch.randn(4, 1, requires_grad=True), torch.randn(8, 4)
    for _ in range(7):
        (x @ weight - 1).square().mean().backward()
        with torch.no_grad():
            weight -= 0.01 * weight.grad  # <- GD101
        weight.grad = None


def zero_between() -> None:
    """The gradients are removed between the clip and the step."""
    model, optimizer, loss = regression()
    for _ in range(6):
        loss().backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.zero_grad()
        optimizer.step()  # <- GD112


def zeros_between() -> None:
    """They are made 0 there."""
    model, optimizer, loss = regression()
    for _ in range(6):
        loss().backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.zero_grad(set_to_none=False)
        optimizer.step()  # <- GD112


def right_by_hand_not_reached() -> None:
    """Right: a clip by hand, in functions, whose limit no norm reaches."""
    model, optimizer, loss = regression()

    def norm() -> float:
        return math.sqrt(sum(float(p.grad.square().sum()) for p in model.parameters()))

    def clip(limit: float) -> None:
        total = norm()
        if total > limit:
            for parameter in model.parameters():
                parameter.grad.mul_(limit / total)

    for _ in range(6):
        optimizer.zero_grad()
        loss().backward()
        clip(1e3)
        optimizer.step()


def right_generator_only() -> None:
    """Right: the generator is clipped, and the critic is not, on purpose."""
    model, optimizer, loss = regression()
    critic, x = torch.nn.Linear(1, 1), torch.randn(64, 4)
    other = torch.optim.SGD(critic.parameters(), lr=0.01)
    for _ in range(6):
        other.zero_grad()
        critic(model(x).detach()).mean().backward()
        other.step()
        optimizer.zero_grad()
        (loss() - critic(model(x)).mean()).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()


def right_limits() -> None:
    """Right: a limit for each group of the optimizer."""
    model, _, loss = regression()
    groups = [{"params": model[0].parameters(), "limit": 1.0}, {"params": model[2].parameters(), "limit": 0.5}]
    optimizer = torch.optim.SGD(groups, lr=0.01)
    for _ in range(6):
        optimizer.zero_grad()
        loss().backward()
        for group in optimizer.param_groups:
            torch.nn.utils.clip_grad_norm_(group["params"], group["limit"])
        optimizer.step()


def right_step_by_hand() -> None:
    """Right: the script steps by itself, one parameter after the other, and clips before."""
    model, _, loss = regression()
    for step in range(7):
        loss().backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for parameter in model.parameters():
            parameter.data.add_(parameter.grad, alpha=-0.01)
            if step % 2:
                parameter.grad.zero_()
            else:
                parameter.grad = None


def right_unused() -> None:
    """Right: a part has an optimizer, and does not learn now."""
    model, optimizer, loss = regression()
    head = torch.optim.SGD(torch.nn.Linear(4, 1).parameters(), lr=0.01)
    for _ in range(6):
        head.zero_grad()
        optimizer.zero_grad()
        loss().backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        head.step()
        optimizer.step()


def right_zeroed_by_hand() -> None:
    """Right: the gradients become 0 in ways that no function of an optimizer shows."""
    model, optimizer, loss = regression()
    for step in range(6):
        loss().backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        for parameter in model.parameters():
            if step % 2:
                parameter.grad.data.zero_()
            else:
                parameter.grad = None


def later_stage() -> None:
    """The optimizer of a second stage has no clip."""
    model, optimizer, loss = regression()
    for _ in range(3):
        optimizer.zero_grad()
        loss().backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    other = torch.optim.SGD(model.parameters(), lr=1e-3)
    for _ in range(3):
        other.zero_grad()
        loss().backward()
        other.step()  # <- GD101


if __name__ == "__main__":
    globals()[sys.argv[-1]]()
