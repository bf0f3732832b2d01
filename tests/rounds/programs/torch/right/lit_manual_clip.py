import lightning as L
import torch
import torch.nn.functional as F
from torch import nn


class DCGAN(L.LightningModule):
    def __init__(self, latent=16, clip=0.5):
        super().__init__()
        self.automatic_optimization = False
        self.latent, self.clip = latent, clip
        self.G = nn.Sequential(nn.Linear(latent, 64), nn.ReLU(), nn.Linear(64, 8))
        self.D = nn.Sequential(nn.Linear(8, 64), nn.LeakyReLU(0.2), nn.Linear(64, 1))

    def training_step(self, batch, batch_idx):
        opt_g, opt_d = self.optimizers()
        (x,) = batch
        z = torch.randn(len(x), self.latent, device=self.device)

        loss_d = F.softplus(-self.D(x)).mean() + F.softplus(self.D(self.G(z).detach())).mean()
        opt_d.zero_grad()
        self.manual_backward(loss_d)
        self.clip_gradients(opt_d, gradient_clip_val=self.clip, gradient_clip_algorithm="norm")
        opt_d.step()

        if batch_idx % 2 == 0:
            loss_g = F.softplus(-self.D(self.G(z))).mean()
            opt_g.zero_grad()
            self.manual_backward(loss_g)
            self.clip_gradients(opt_g, gradient_clip_val=self.clip, gradient_clip_algorithm="norm")
            opt_g.step()

    def configure_optimizers(self):
        return (
            torch.optim.Adam(self.G.parameters(), 2e-4),
            torch.optim.Adam(self.D.parameters(), 2e-4),
        )
