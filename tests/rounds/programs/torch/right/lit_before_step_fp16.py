import lightning as L, torch
class M(L.LightningModule):
    def training_step(self, b, i):
        return self.net(b).mean()
    def on_before_optimizer_step(self, optimizer):
        torch.nn.utils.clip_grad_norm_(self.parameters(), 1.0)
    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters())
L.Trainer(precision="16-mixed").fit(M())
