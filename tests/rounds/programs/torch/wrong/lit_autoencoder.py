import lightning as L
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class LitAutoEncoder(L.LightningModule):
    def __init__(self, width=64, lr=1e-3, clip=0.5):
        super().__init__()
        self.save_hyperparameters()
        self.encoder = nn.Sequential(nn.Linear(28 * 28, width), nn.ReLU(), nn.Linear(width, 3))
        self.decoder = nn.Sequential(nn.Linear(3, width), nn.ReLU(), nn.Linear(width, 28 * 28))

    def forward(self, x):
        return self.decoder(self.encoder(x))

    def training_step(self, batch, batch_idx):
        (x,) = batch
        x = x.view(x.size(0), -1)
        loss = nn.functional.mse_loss(self(x), x)
        torch.nn.utils.clip_grad_norm_(self.parameters(), self.hparams.clip)
        self.log("train_loss", loss, prog_bar=True)
        return loss

    def validation_step(self, batch, batch_idx):
        (x,) = batch
        x = x.view(x.size(0), -1)
        self.log("val_loss", nn.functional.mse_loss(self(x), x))

    def configure_optimizers(self):
        optimizer = torch.optim.Adam(self.parameters(), lr=self.hparams.lr)
        return {"optimizer": optimizer, "lr_scheduler": torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.99)}


if __name__ == "__main__":
    L.seed_everything(1)
    data = DataLoader(TensorDataset(torch.rand(256, 1, 28, 28)), batch_size=32)
    trainer = L.Trainer(max_epochs=2, accelerator="cpu", logger=False)
    trainer.fit(LitAutoEncoder(), data, data)
