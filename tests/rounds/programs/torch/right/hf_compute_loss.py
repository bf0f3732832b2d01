import torch
from transformers import Trainer, TrainingArguments


class ClippedTrainer(Trainer):
    def compute_loss(self, model, inputs, return_outputs=False, **kwargs):
        outputs = model(**inputs)
        return (outputs.loss, outputs) if return_outputs else outputs.loss


args = TrainingArguments(output_dir="out", per_device_train_batch_size=8, max_grad_norm=0.3)
ClippedTrainer(model=model, args=args, train_dataset=train).train()
