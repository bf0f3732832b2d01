import argparse
import math

import torch
import torch.nn.functional as F
from accelerate import Accelerator
from torch import nn


def parse_args():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rank", type=int, default=4)
    parser.add_argument("--mixed_precision", type=str, default="fp16")
    parser.add_argument("--gradient_accumulation_steps", type=int, default=4)
    parser.add_argument("--max_grad_norm", type=float, default=1.0)
    parser.add_argument("--learning_rate", type=float, default=1e-4)
    parser.add_argument("--max_train_steps", type=int, default=50)
    return parser.parse_args()


class LoRALinear(nn.Module):
    def __init__(self, base, rank):
        super().__init__()
        self.base = base.requires_grad_(False)
        self.down = nn.Linear(base.in_features, rank, bias=False)
        self.up = nn.Linear(rank, base.out_features, bias=False)
        nn.init.zeros_(self.up.weight)
        nn.init.kaiming_uniform_(self.down.weight, a=math.sqrt(5))

    def forward(self, x):
        return self.base(x) + self.up(self.down(x))


def main():
    args = parse_args()
    accelerator = Accelerator(
        mixed_precision=args.mixed_precision, gradient_accumulation_steps=args.gradient_accumulation_steps
    )
    unet = nn.Sequential(LoRALinear(nn.Linear(64, 64), args.rank), nn.SiLU(), LoRALinear(nn.Linear(64, 64), args.rank))
    lora_layers = [p for p in unet.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(lora_layers, lr=args.learning_rate)
    loader = torch.utils.data.DataLoader(torch.randn(400, 64), batch_size=8)
    unet, optimizer, loader = accelerator.prepare(unet, optimizer, loader)
    global_step = 0
    for latents in loader:
        with accelerator.accumulate(unet):
            noise = torch.randn_like(latents)
            loss = F.mse_loss(unet(latents + noise).float(), noise.float())
            accelerator.backward(loss)
            torch.nn.utils.clip_grad_norm_(lora_layers, args.max_grad_norm)
            optimizer.step()
            optimizer.zero_grad()
        if accelerator.sync_gradients:
            global_step += 1
        if global_step >= args.max_train_steps:
            break


if __name__ == "__main__":
    main()
