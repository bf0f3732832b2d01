import tensorflow as tf

tf.random.set_seed(0)
UNITS, VOCAB = 16, 20


class Encoder(tf.keras.Model):
    def __init__(self):
        super().__init__()
        self.embedding = tf.keras.layers.Embedding(VOCAB, UNITS)
        self.gru = tf.keras.layers.GRU(UNITS, return_state=True)

    def call(self, x):
        return self.gru(self.embedding(x))[1]


encoder = Encoder()
decoder = tf.keras.Sequential([tf.keras.layers.Dense(UNITS, activation="relu"), tf.keras.layers.Dense(VOCAB)])
optimizer = tf.keras.optimizers.SGD(0.1)
loss_object = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)


def train_step(inp, targ):
    with tf.GradientTape() as tape:
        loss = 20 * loss_object(targ, decoder(encoder(inp)))
    variables = encoder.trainable_variables + decoder.trainable_variables
    gradients = tape.gradient(loss, variables)
    clipped, _ = tf.clip_by_global_norm(gradients, 1.0)
    optimizer.apply_gradients(zip(gradients, variables))
    return loss


for epoch in range(3):
    inp = tf.random.uniform((8, 6), 0, VOCAB, dtype=tf.int32)
    print(epoch, train_step(inp, inp[:, 0]).numpy())
