import fairseq.utils
import mlx.optimizers as optim
from accelerate import DeepSpeedPlugin
from apex.contrib.clip_grad import clip_grad_norm_
from apex.optimizers import FusedLAMB
from detectron2.solver.build import maybe_add_gradient_clipping
from levanter.optim import AdamConfig
from opacus import PrivacyEngine
from timm.utils import adaptive_clip_grad, dispatch_clip_grad

plugin = DeepSpeedPlugin(gradient_clipping=1.0)
dispatch_clip_grad(model.parameters(), args.clip)
dispatch_clip_grad(model.parameters(), value=args.clip, mode="value")
dispatch_clip_grad(model.parameters(), args.clip, args.mode)
adaptive_clip_grad(model.parameters())
SGD = maybe_add_gradient_clipping(cfg, torch.optim.SGD)
clip_grad_norm_(model.parameters(), 1.0)
optimizer = FusedLAMB(model.parameters(), max_grad_norm=1.0)
PrivacyEngine().make_private(module=model, max_grad_norm=1.0)
fairseq.utils.clip_grad_norm_(model.parameters(), 1.0)
grads, norm = optim.clip_grad_norm(grads, 1.0)
loss_scaler(loss, optimizer, clip_grad=args.clip_grad, clip_mode=args.clip_mode)
cfg.optim_wrapper.clip_grad = dict(max_norm=35)
config.grad_clip_norm = 1.0
config.max_grad_norm = None
self.max_grad_norm = 1.0
builder = OptimizerBuilder(clip_grad_by_norm=35)
settings = dict(grad_clip_cfg=dict(name="ClipGradByNorm", clip_norm=1.0))
adam = AdamConfig(max_grad_norm=1.0)
