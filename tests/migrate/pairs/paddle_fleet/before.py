import paddle
from paddle.distributed import fleet

clip = paddle.nn.ClipGradByGlobalNorm(1.0)
optimizer = fleet.distributed_optimizer(paddle.optimizer.SGD(0.1, grad_clip=clip))
