import torch
def toggle(net, on):
    for p in net.parameters():
        p.requires_grad = on
opt_g = torch.optim.Adam(G.parameters())
opt_d = torch.optim.Adam(D.parameters())
for real in loader:
    toggle(D, True)
    opt_d.zero_grad()
    (D(G(noise()).detach()) - D(real)).mean().backward()
    torch.nn.utils.clip_grad_norm_(D.parameters(), 1.0)
    opt_d.step()
    toggle(D, False)
    opt_g.zero_grad()
    (-D(G(noise()))).mean().backward()
    torch.nn.utils.clip_grad_norm_(G.parameters(), 1.0)
    opt_g.step()
