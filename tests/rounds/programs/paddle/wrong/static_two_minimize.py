import numpy as np
import paddle

paddle.enable_static()
paddle.seed(0)


def build(lr, finetune):
    x = paddle.static.data("x", [None, 5], "float32")
    y = paddle.static.data("y", [None, 1], "float32")
    h = paddle.static.nn.fc(x, 16, activation="relu")
    loss = paddle.mean(paddle.nn.functional.square_error_cost(paddle.static.nn.fc(h, 1), y))
    clip = paddle.nn.ClipGradByGlobalNorm(0.1)
    if finetune:
        optimizer = paddle.optimizer.Momentum(lr, 0.9)
    else:
        optimizer = paddle.optimizer.Adam(lr, grad_clip=clip)
    optimizer.minimize(loss)
    return loss


def main():
    main_program, startup = paddle.static.Program(), paddle.static.Program()
    with paddle.static.program_guard(main_program, startup):
        loss = build(1e-3, finetune=True)
    exe = paddle.static.Executor(paddle.CPUPlace())
    exe.run(startup)
    rng = np.random.default_rng(0)
    for i in range(4):
        x = rng.normal(size=(32, 5)).astype("float32")
        (value,) = exe.run(main_program, feed={"x": x, "y": 20 * x[:, :1]}, fetch_list=[loss])
        print(i, float(value))


main()
