"""Keras's own clips against gradclip, by the tests of every framework's natives."""

from natives.test_natives import (  # noqa: F401
    of,
    pytest_generate_tests,
    test_behaviour,
    test_case,
    test_departures_name_what_is_replayed,
)
