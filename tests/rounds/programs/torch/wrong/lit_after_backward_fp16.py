import lightning as L
import torch


class Net(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(32, 2)

    def training_step(self, batch, _):
        return torch.nn.functional.cross_entropy(self.layer(batch[0]), batch[1])

    def on_after_backward(self):
        torch.nn.utils.clip_grad_norm_(self.parameters(), 1.0)

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters())


trainer = L.Trainer(max_epochs=3, precision="16-mixed")
trainer.fit(Net(), loader)
