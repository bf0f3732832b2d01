import torch


def step(loss, model, optimizer, scaler):
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(optimizer)
    scaler.update()


def accelerated(loss, model, accelerator):
    accelerator.backward(loss)
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)


def sharded(loss, module):
    model = torch.distributed.fsdp.FullyShardedDataParallel(module)
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
