"""Word vectors, written for Paddle 1.8 and never touched since."""

import paddle.fluid as fluid


def optimizer(avg_cost):
    clip = fluid.clip.GradientClipByGlobalNorm(clip_norm=5.0)
    sgd = fluid.optimizer.SGD(learning_rate=0.1, grad_clip=clip)
    sgd.minimize(avg_cost)
