from torch.nn.utils import clip_grad_norm_


def train(model, optimizer, losses):
    for loss in losses:
        loss.backward()
        clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
