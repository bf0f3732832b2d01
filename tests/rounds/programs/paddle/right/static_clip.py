import numpy as np
import paddle


def build_program(clip_norm=0.5):
    main, startup = paddle.static.Program(), paddle.static.Program()
    with paddle.static.program_guard(main, startup):
        x = paddle.static.data("x", [None, 6], "float32")
        y = paddle.static.data("y", [None, 1], "int64")
        h = paddle.static.nn.fc(x, 12, activation="tanh")
        logits = paddle.static.nn.fc(h, 3)
        loss = paddle.mean(paddle.nn.functional.cross_entropy(logits, y))
        opt = paddle.optimizer.Adam(0.01, grad_clip=paddle.nn.ClipGradByGlobalNorm(clip_norm))
        opt.minimize(loss)
    return main, startup, loss


if __name__ == "__main__":
    paddle.enable_static()
    paddle.seed(0)
    main, startup, loss = build_program()
    exe = paddle.static.Executor()
    exe.run(startup)
    rng = np.random.default_rng(1)
    for i in range(4):
        x = rng.normal(size=(16, 6)).astype("float32")
        y = x[:, :3].argmax(1)[:, None]
        print(i, exe.run(main, feed={"x": x, "y": y}, fetch_list=[loss])[0])
