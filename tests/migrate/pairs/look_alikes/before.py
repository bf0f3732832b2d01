import numpy as np
import tensorflow as tf
import torch
import torch.nn.functional as F

for p in critic.parameters():
    p.data.clamp_(-0.01, 0.01)  # WGAN
ratio = torch.clamp(ratio, 1 - eps, 1 + eps)
surrogate = torch.min(ratio * adv, torch.clamp(ratio, 1.0 - eps, 1.0 + eps) * adv)
clipped_ratio = tf.clip_by_value(ratio, 1 - eps, 1 + eps)
actions = tf.clip_by_value(actions, -1.0, 1.0)
inverted = tf.clip_by_value(action_gradients, -1.0, 1.0)
probabilities = tf.clip_by_value(p_hat, 1e-8, 1.0)
weights = tf.clip_by_norm(weights, 2.0)
image = np.clip(image + epsilon * np.sign(grad), 0, 255)
hidden = F.relu(x).clamp(max=6)
video = moviepy.clip(0, 10)
log_std = log_std.clamp(-20, 2)
