import accelerate
import lightning
import tensorflow as tf
import torch
from torch.nn.utils import clip_grad_norm_


def other_parameters(actor, critic, loss):
    actor_optimizer = torch.optim.SGD(actor.parameters(), lr=0.1)
    critic_optimizer = torch.optim.SGD(critic.parameters(), lr=0.1)
    loss().backward()
    clip_grad_norm_(actor.parameters(), 1.0)
    critic_optimizer.step()
    return actor_optimizer


def micro_batches(model, optimizer, losses):
    for i, loss in enumerate(losses):
        loss().backward()
        clip_grad_norm_(model.parameters(), 1.0)
        if (i + 1) % 4 == 0:
            optimizer.step()
            optimizer.zero_grad()


def before_the_sum(model, loss):
    with model.no_sync():
        loss().backward()
        clip_grad_norm_(model.parameters(), 1.0)


def none(model, tape, loss):
    return [tf.clip_by_norm(g, 1.0) for g in tape.gradient(loss, model.trainable_variables)]


class Model(lightning.LightningModule):
    automatic_optimization = False


trainer = lightning.Trainer(gradient_clip_val=1.0)
accelerator = accelerate.Accelerator(deepspeed_plugin=accelerate.DeepSpeedPlugin(zero_stage=2))
accelerator.clip_grad_norm_(Model().parameters(), 1.0)
