from paddle.fluid import dygraph_grad_clip

clip = dygraph_grad_clip.GradClipByNorm(1.0)
clip = dygraph_grad_clip.GradClipByGlobalNorm(max_global_norm=1.0)
clip = dygraph_grad_clip.GradClipByValue(-1.0, max_value=1.0)
