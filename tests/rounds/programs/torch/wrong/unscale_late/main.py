import torch
from torch import nn

from trainer import Trainer


def main():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(10, 40), nn.GELU(), nn.Linear(40, 3))
    trainer = Trainer(model, max_norm=0.5)
    for step in range(4):
        x = torch.randn(24, 10)
        loss = trainer.backward(x, x[:, :3].argmax(1))
        trainer.clip_gradients()
        trainer.unscale()
        trainer.step()
        print(step, loss)


if __name__ == "__main__":
    main()
