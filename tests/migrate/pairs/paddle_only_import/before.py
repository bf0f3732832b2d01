from paddle.nn import ClipGradByNorm

CLIP = ClipGradByNorm(1.0)
