import paddle.fluid as fluid
from paddle.fluid.optimizer import Adam


def branches(loss, warm, rate):
    if warm:
        optimizer = fluid.optimizer.Adam(learning_rate=rate)
    else:
        optimizer = fluid.optimizer.Lamb(
            learning_rate=rate,
            epsilon=1e-6,  # the default
        )
    limit = 1.0
    fluid.clip.set_gradient_clip(
        clip=fluid.clip.GradientClipByGlobalNorm(clip_norm=limit))
    return optimizer.minimize(loss)


def returned():
    fluid.clip.set_gradient_clip(clip=fluid.clip.GradientClipByValue(1.0, -1.0))
    return Adam()


def of_a_list(self, cost):
    fluid.clip.set_gradient_clip(fluid.clip.GradientClipByNorm(self.limit), param_list=self.actor())
    optimizer = fluid.optimizer.AdamOptimizer(self.rate)
    optimizer.minimize(cost, parameter_list=self.actor())


def named(loss):
    clip = fluid.clip.GradientClipByNorm(1.0)
    optimizer = fluid.optimizer.AdamOptimizer(self.rate)
    fluid.clip.set_gradient_clip(clip)
    optimizer.minimize(loss)


def only_if(loss, limit):
    optimizer = fluid.optimizer.SGD(0.1)
    if limit:
        print(limit)
        fluid.clip.set_gradient_clip(fluid.clip.GradientClipByNorm(limit))
    optimizer.minimize(loss)


def of_another_list(cost):
    fluid.clip.set_gradient_clip(fluid.clip.GradientClipByNorm(1.0), param_list=actor)
    optimizer = fluid.optimizer.SGD(0.1)
    optimizer.minimize(cost)


def not_known_yet(loss):
    optimizer = fluid.optimizer.SGD(0.1)
    limit = measured()
    fluid.clip.set_gradient_clip(fluid.clip.GradientClipByNorm(limit))
    optimizer.minimize(loss)


def two(loss):
    one = fluid.optimizer.SGD(0.1)
    other = fluid.optimizer.SGD(0.2)
    fluid.clip.set_gradient_clip(fluid.clip.GradientClipByNorm(1.0))
    one.minimize(loss)


def wrapped(loss):
    optimizer = fluid.optimizer.SGD(0.1)
    fluid.clip.set_gradient_clip(fluid.clip.GradientClipByNorm(1.0))
    optimizer = fleet.distributed_optimizer(optimizer)
    optimizer.minimize(loss)


def too_late(loss):
    optimizer = fluid.optimizer.SGD(0.1)
    optimizer.minimize(loss)
    fluid.clip.set_gradient_clip(fluid.clip.GradientClipByNorm(1.0))


def elsewhere(loss):
    fluid.clip.set_gradient_clip(fluid.clip.GradientClipByNorm(1.0, need_clip=wanted))
    optimizer = fluid.optimizer.SGD(0.1)
    optimizer.minimize(loss)


def unknown(loss, clip):
    fluid.clip.set_gradient_clip(make(clip))
    optimizer = fluid.optimizer.SGD(0.1)
    optimizer.minimize(loss)


def starred(loss, clip):
    fluid.clip.set_gradient_clip(fluid.clip.GradientClipByNorm(*clip))
    optimizer = fluid.optimizer.SGD(0.1)
    optimizer.minimize(loss)
