import torch
from torch import nn
router, experts = nn.Linear(4, 2), nn.ModuleList([nn.Linear(4, 1), nn.Linear(4, 1)])
opt = torch.optim.AdamW([*router.parameters(), *experts.parameters()])
for _ in range(10):
    x = torch.randn(8, 4)
    opt.zero_grad()
    gate = router(x).softmax(-1)
    out = sum(gate[:, i:i + 1] * e(x) for i, e in enumerate(experts))
    out.square().mean().backward()
    nn.utils.clip_grad_norm_([p for m in (router, experts) for p in m.parameters()], 1.0)
    opt.step()
