import gradclip


def train(model, optimizer, losses):
    for loss in losses:
        loss.backward()
        gradclip.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
