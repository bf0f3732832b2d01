"""The tests' own options of XLA: one that the installed jaxlib does not know would abort each process."""

from __future__ import annotations

import xla_flags


def test_only_options_that_jaxlib_knows() -> None:
    assert not xla_flags.knows("--xla_an_option_of_no_release=1")
    assert xla_flags.knows(xla_flags.of_devices(2)), "the options together start"
    assert "--xla_backend_optimization_level=0" in xla_flags.fast(), "no release is without it"
