import gradclip
import tensorflow as tf

gradclip.clip_grad_norm_(model.parameters(), 1.0)
grads, _ = tf.clip_by_global_norm(grads, 1.0)
