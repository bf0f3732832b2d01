import pytorch_lightning as pl
import torch
import torch.nn.functional as F
from torch import nn


class VAE(pl.LightningModule):
    def __init__(self, latent=8, clip_val=1.0):
        super().__init__()
        self.automatic_optimization = False
        self.clip_val = clip_val
        self.enc = nn.Linear(784, 2 * latent)
        self.dec = nn.Linear(latent, 784)

    def training_step(self, batch, batch_idx):
        opt = self.optimizers()
        x = batch[0].flatten(1)
        mu, logvar = self.enc(x).chunk(2, dim=1)
        z = mu + torch.randn_like(mu) * (0.5 * logvar).exp()
        recon = F.binary_cross_entropy_with_logits(self.dec(z), x, reduction="none").sum(1)
        kl = -0.5 * (1 + logvar - mu.pow(2) - logvar.exp()).sum(1)
        loss = (recon + kl).mean()
        opt.zero_grad()
        self.manual_backward(loss)
        opt.step()
        self.log_dict({"recon": recon.mean(), "kl": kl.mean()})

    def configure_gradient_clipping(self, optimizer, gradient_clip_val=None, gradient_clip_algorithm=None):
        self.clip_gradients(optimizer, gradient_clip_val=self.clip_val, gradient_clip_algorithm="norm")

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=1e-3)


def main():
    data = torch.utils.data.TensorDataset(torch.rand(128, 1, 28, 28))
    loader = torch.utils.data.DataLoader(data, batch_size=32)
    pl.Trainer(max_epochs=1, enable_checkpointing=False).fit(VAE(), loader)


if __name__ == "__main__":
    main()
