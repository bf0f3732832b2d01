"""Every way in which up to 8 ranks can hold gradients: the norm and the clipped gradients are those of the gathered model."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator

import pytest
import torch.distributed as dist
from topologies import MESHES, Case, cases, in_pairs, outcome, why
from torch.distributed.device_mesh import init_device_mesh
from torch_only.distributed import tensors, threads

from gradclip.backends.torch import dtensor

SAMPLE = 200


@functools.cache
def chosen(is_sample: bool) -> list[Case]:
    return in_pairs(cases(), SAMPLE) if is_sample else cases()


@pytest.fixture(scope="module", params=sorted({math.prod(mesh) for mesh in MESHES}))
def ranks(request: pytest.FixtureRequest) -> Iterator[threads.Ranks]:
    with threads.ranks(request.param) as made:
        yield made


def failures(ranks: threads.Ranks, given: list[Case]) -> list[str]:
    found = []
    for case in given:
        if math.prod(case.mesh) == ranks.size:
            out = None if why(case.rule, case.grads, case.stage) else outcome(case)
            norms, failed = ranks.run(functools.partial(tensors.check, case, out))
            if not failed and len(set(map(repr, norms))) > 1:
                failed = f"the ranks have different norms: {norms}"
            found += [f"{case}\n{failed}"] if failed else []
    return found


@pytest.mark.parametrize(
    "is_sample", [True, pytest.param(False, marks=pytest.mark.slow("a mistake that no pair of features shows"))]
)
def test_every_topology(ranks: threads.Ranks, is_sample: bool) -> None:
    found = failures(ranks, chosen(is_sample))
    assert not found, f"{len(found)} failures, the first:\n" + "\n".join(found[:5])


def test_there_are_many() -> None:
    assert len({case.topology() for case in chosen(False)}) >= 2000
    pairs = [{frozenset((a, b)) for a in case.features() for b in case.features()} for case in chosen(True)]
    assert len(chosen(True)) < SAMPLE, "the sample ends when it has every pair"
    assert frozenset(("P", "told")) in set().union(*pairs)


# ---- these checks can fail -------------------------------------------------------------------------------------------------


def test_a_wrong_norm_is_found(ranks: threads.Ranks, monkeypatch: pytest.MonkeyPatch) -> None:
    """A clip that takes each rank's own norm is wrong wherever a gradient is divided."""
    given = [case for case in chosen(False) if case.rule in ("order 2", "order 3") and case.grads[0].divided()]
    mine = [case for case in given if math.prod(case.mesh) == ranks.size and not case.missing and case.stage is None][:8]
    with monkeypatch.context() as patch:
        patch.setattr(dtensor.TorchProcesses, "combine", lambda self, values, join: values)
        assert len(failures(ranks, mine)) == len(mine) > 0


def test_a_deadlock_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ranks that wait in different groups fail, and the next case runs."""

    def stuck() -> None:
        groups = init_device_mesh("cpu", (2, 2)).get_all_groups()
        dist.barrier(groups[dist.get_rank() % 2])

    with threads.ranks(4) as four:
        with monkeypatch.context() as patch:
            patch.setattr(threads, "PATIENCE", 2)
            assert "deadlock" in four.run(stuck)[1]
        assert four.run(dist.get_rank) == ([0, 1, 2, 3], "")
