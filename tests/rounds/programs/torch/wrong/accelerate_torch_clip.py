import torch
from accelerate import Accelerator

accelerator = Accelerator(mixed_precision="fp16", gradient_accumulation_steps=4)
optimizer = torch.optim.AdamW(unet.parameters(), lr=1e-4)
unet, optimizer, loader = accelerator.prepare(unet, optimizer, loader)
for batch in loader:
    with accelerator.accumulate(unet):
        loss = torch.nn.functional.mse_loss(unet(batch["noisy"], batch["t"]).sample, batch["noise"])
        accelerator.backward(loss)
        if accelerator.sync_gradients:
            torch.nn.utils.clip_grad_norm_(unet.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
