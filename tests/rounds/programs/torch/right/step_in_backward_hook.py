import torch

model = build()
optimizers = {p: torch.optim.AdamW([p], lr=1e-5) for p in model.parameters()}


def step_now(param):
    torch.nn.utils.clip_grad_norm_([param], 1.0)
    optimizers[param].step()
    optimizers[param].zero_grad()


for p in model.parameters():
    p.register_post_accumulate_grad_hook(step_now)

for batch in loader:
    loss = model(**batch).loss
    loss.backward()
