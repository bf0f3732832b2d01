"""accelerate's clip on two ranks: before a release, with accelerate installed (``tox -e third-parties``)."""

from __future__ import annotations

from pathlib import Path

from conformance.torch_only.test_ranks import results
from launched import start
from torch_only.distributed.test_distributed import said


def test_accelerate_clips_plain_tensors_beside_dtensors_and_waits_for_a_missing_gradient(tmp_path: Path) -> None:
    expected = {"2-S0-even": "", "2-plain-beside": "", "2-again": "", "2-missing-first": "hung", "2-large": ""}
    chosen = [option for vector in expected for option in ("--select", f"*/{vector}")]
    clip = f"{Path(__file__).with_name('on_ranks.py')}:clip"
    found = results(tmp_path, 1, clip, "--ranks", "2", "--timeout", "10", *chosen)
    assert {name: result["reason"] for name, result in found.items()} == expected
    fails = {name for name, result in found.items() if result["status"] == "fail"}
    assert fails == {"2-missing-first", "2-large"}
    assert "the norm is inf" in found["2-large"]["message"]


def test_accelerate_clips_a_model_that_it_wraps_with_fsdp2() -> None:
    """Natively, and with gradclip in the place of torch's function: the norm and the gradients are those of the whole model."""
    script = Path(__file__).with_name("accelerate_fsdp2.py")
    done = start("torch.distributed.run", "--standalone", "--nproc-per-node=2", str(script))
    assert done.returncode == 0, said(done)
    assert "4 steps" in done.stdout
