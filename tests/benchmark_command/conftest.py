"""The tests of this folder import `benchmarks`."""

from __future__ import annotations

import benchmarked

assert benchmarked.walk.CEILINGS
