"""A generator and a critic; the critic's weights are clamped, as in the WGAN paper."""

import itertools

import torch

params = itertools.chain(generator.parameters(), encoder.parameters())
optimizer = torch.optim.Adam(params)
critic_optimizer = torch.optim.RMSprop(critic.parameters())


def generator_step(loss):
    loss.backward()
    torch.nn.utils.clip_grad_norm_(params, 0.5)
    optimizer.step()


def critic_step(loss, scaler):
    scaler.scale(loss).backward()
    torch.nn.utils.clip_grad_norm_(critic.parameters(), 0.5)
    scaler.step(critic_optimizer)
    scaler.update()
    for p in critic.parameters():
        p.data.clamp_(-0.01, 0.01)
