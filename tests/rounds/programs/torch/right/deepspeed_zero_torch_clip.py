import deepspeed
import torch

config = {"train_batch_size": 64, "gradient_clipping": 1.0, "zero_optimization": {"stage": 2}, "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}}}
engine, optimizer, _, _ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=config)
for batch in loader:
    loss = engine(batch)
    engine.backward(loss)
    engine.step()
