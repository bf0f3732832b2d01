import torch
encoder, decoder = torch.nn.Linear(4, 8), torch.nn.Linear(8, 4)
of_encoder = torch.optim.Adam(encoder.parameters())
of_decoder = torch.optim.Adam(decoder.parameters())
for _ in range(10):
    x = torch.randn(8, 4)
    of_encoder.zero_grad()
    of_decoder.zero_grad()
    (decoder(encoder(x)) - x).square().mean().backward()
    torch.nn.utils.clip_grad_norm_([*encoder.parameters(), *decoder.parameters()], 1.0)
    of_encoder.step()
    of_decoder.step()
