import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch import nn


def training_function(config):
    set_seed(config["seed"])
    accelerator = Accelerator(gradient_accumulation_steps=config["accumulate"], mixed_precision="fp16")
    model = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 2))
    optimizer = torch.optim.AdamW(model.parameters(), lr=config["lr"])
    data = torch.utils.data.TensorDataset(torch.randn(256, 16), torch.randint(0, 2, (256,)))
    loader = torch.utils.data.DataLoader(data, batch_size=config["batch_size"], shuffle=True)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    for epoch in range(config["num_epochs"]):
        model.train()
        for x, y in loader:
            with accelerator.accumulate(model):
                loss = nn.functional.cross_entropy(model(x), y)
                accelerator.backward(loss)
                if accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                optimizer.zero_grad()
        accelerator.print(f"epoch {epoch}: {loss.item():.3f}")


if __name__ == "__main__":
    training_function({"seed": 1, "lr": 1e-3, "num_epochs": 2, "batch_size": 16, "accumulate": 4})
