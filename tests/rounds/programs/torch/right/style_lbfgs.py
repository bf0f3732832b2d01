import torch
import torch.nn.functional as F

torch.manual_seed(0)


def gram(f):
    c, n = f.shape[1], f.shape[2] * f.shape[3]
    f = f.reshape(c, n)
    return f @ f.T / n


filters = torch.randn(6, 3, 3, 3) * 0.3


def features(x):
    return F.relu(F.conv2d(x, filters, padding=1))


def stylize(content, style, steps=3, clip=1.0):
    image = content.clone().requires_grad_(True)
    optimizer = torch.optim.LBFGS([image], max_iter=5)
    style_gram = gram(features(style)).detach()
    content_f = features(content).detach()
    for step in range(steps):

        def closure():
            with torch.no_grad():
                image.clamp_(0, 1)
            optimizer.zero_grad()
            f = features(image)
            loss = 100 * F.mse_loss(gram(f), style_gram) + F.mse_loss(f, content_f)
            loss.backward()
            torch.nn.utils.clip_grad_norm_([image], clip)
            return loss

        loss = optimizer.step(closure)
        print(step, loss.item())
    return image.detach()


stylize(torch.rand(1, 3, 12, 12), torch.rand(1, 3, 12, 12))
