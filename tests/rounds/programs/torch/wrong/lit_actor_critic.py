import lightning.pytorch as pl
import torch
from torch import nn


class ActorCritic(pl.LightningModule):
    def __init__(self, obs=8, act=2, max_norm=0.5):
        super().__init__()
        self.automatic_optimization = False
        self.actor = nn.Sequential(nn.Linear(obs, 64), nn.Tanh(), nn.Linear(64, act))
        self.critic = nn.Sequential(nn.Linear(obs, 64), nn.Tanh(), nn.Linear(64, 1))
        self.max_norm = max_norm

    def _clip(self, optimizer):
        self.clip_gradients(optimizer, gradient_clip_val=self.max_norm, gradient_clip_algorithm="norm")

    def training_step(self, batch, batch_idx):
        obs, act, ret = batch
        actor_opt, critic_opt = self.optimizers()

        value = self.critic(obs).squeeze(-1)
        logp = torch.distributions.Categorical(logits=self.actor(obs)).log_prob(act)
        actor_loss = -(logp * (ret - value).detach()).mean()
        actor_opt.zero_grad()
        self.manual_backward(actor_loss)
        self._clip(actor_opt)
        actor_opt.step()

        critic_loss = nn.functional.mse_loss(value, ret)
        critic_opt.zero_grad()
        self.manual_backward(critic_loss)
        self._clip(optimizer=actor_opt)
        critic_opt.step()
        self.log_dict({"actor": actor_loss, "critic": critic_loss})

    def configure_optimizers(self):
        return torch.optim.Adam(self.actor.parameters(), 3e-4), torch.optim.Adam(self.critic.parameters(), 1e-3)
