import torch

scaler = torch.cuda.amp.GradScaler()
opt_g = torch.optim.Adam(G.parameters(), lr=2e-4)
opt_d = torch.optim.Adam(D.parameters(), lr=2e-4)

for real in loader:
    with torch.cuda.amp.autocast():
        loss_g, loss_d = losses(G, D, real)
    opt_g.zero_grad()
    opt_d.zero_grad()
    scaler.scale(loss_d).backward(retain_graph=True)
    scaler.scale(loss_g).backward()
    scaler.unscale_(opt_g)
    torch.nn.utils.clip_grad_norm_(G.parameters(), 1.0)
    torch.nn.utils.clip_grad_norm_(D.parameters(), 1.0)
    scaler.step(opt_g)
    scaler.step(opt_d)
    scaler.update()
