import paddle

clip = paddle.nn.ClipGradByGlobalNorm(1.0)
clip = paddle.nn.ClipGradByValue(max=1.0, min=-2.0)
paddle.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
