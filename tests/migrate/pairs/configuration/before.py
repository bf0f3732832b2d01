from accelerate import Accelerator
from lightning.pytorch import Trainer
from transformers import TrainingArguments

trainer = Trainer(max_epochs=3, gradient_clip_val=0.5, gradient_clip_algorithm="norm")
arguments = TrainingArguments("out", max_grad_norm=1.0)
arguments = TrainingArguments("out", max_grad_norm=None)
train(model, max_grad_norm=1.0)
deepspeed = {"train_batch_size": 8, "gradient_clipping": 1.0}
optimizer_config = dict(grad_clip=dict(max_norm=35, norm_type=2))
optim_wrapper = dict(type="OptimWrapper", clip_grad={"max_norm": 0.1})
optimizer_config = dict(grad_clip=None)
cfg.SOLVER.CLIP_GRADIENTS.ENABLED = True
