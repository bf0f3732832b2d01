"""Fine-tune a language model with accelerate."""

from accelerate import Accelerator

accelerator = Accelerator(mixed_precision="bf16")


def step(model, optimizer, batch):
    loss = model(**batch).loss
    accelerator.backward(loss)
    if accelerator.sync_gradients:
        accelerator.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()
