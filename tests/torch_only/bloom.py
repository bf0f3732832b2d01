"""The clip that made BLOOM-176B's replicas drift, on two processes: https://github.com/deepspeedai/DeepSpeed/pull/1801.

The first version of DeepSpeed's BF16 optimizer left replicas out of the norm on all processes but the first, which is right.
It then scaled the same list, so that only the first process clipped its layer norms.
"""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(0)
norm, linear = torch.nn.LayerNorm(4), torch.nn.Linear(4, 2, bias=False)
shard = torch.nn.Parameter(linear.weight[rank : rank + 1].detach().clone())  # one row of the weights on each process
optimizer = torch.optim.SGD([*norm.parameters(), shard], lr=0.1)
counted = [*norm.parameters(), shard] if rank == 0 else [shard]  # a replica counts once

for _ in range(3):
    optimizer.zero_grad()
    (10 * (norm(torch.randn(8, 4)) @ shard.T - 1).square().mean()).backward()
    for parameter in norm.parameters():
        dist.all_reduce(parameter.grad)
    total = torch.nn.utils.get_total_norm([parameter.grad for parameter in counted]).square()
    dist.all_reduce(total)
    torch.nn.utils.clip_grads_with_norm_(counted, 1.0, total.sqrt())
    optimizer.step()
drift = norm.weight.detach().clone()
dist.all_reduce(drift)
print(f"process {rank}: {(norm.weight - drift / 2).abs().max():.2f} from the mean of both")
dist.destroy_process_group()
