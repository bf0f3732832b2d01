import gradclip
import torch
import torch.distributed as dist
from torch.nn.utils import get_total_norm


def each(model, optimizer, loss):
    loss.backward()
    for p in model.parameters():
        gradclip.clip_grad_norm_(p, 1.0)
    optimizer.step()


def some_processes(model, optimizer, loss):
    loss.backward()
    if dist.get_rank() == 0:
        gradclip.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()


def some_steps(model, optimizer, losses):
    for i, loss in enumerate(losses):
        optimizer.zero_grad()
        loss.backward()
        if i % 4 == 3:
            gradclip.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()


def closure(model, optimizer, loss):
    def evaluate():
        optimizer.zero_grad()
        loss.backward()
        return loss

    evaluate()
    gradclip.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step(evaluate)


def after(model, optimizer, loss, log):
    loss.backward()
    gradclip.clip_grad_norm_(model.parameters(), 1.0)
    log("grad_norm", get_total_norm([p.grad for p in model.parameters()]))
    optimizer.step()


def stays(model, optimizer, losses):
    for loss in losses:
        loss.backward()
        norm = gradclip.clip_grad_norm_(model.parameters(), 1.0)
        if torch.isfinite(norm):
            optimizer.step()
            optimizer.zero_grad()


def off(parser, model, optimizer, loss):
    parser.add_argument("--clip", type=float, default=0.0)
    args = parser.parse_args()
    loss.backward()
    gradclip.clip_grad_norm_(model.parameters(), args.clip)
    optimizer.step()
