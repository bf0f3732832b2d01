"""``gradclip doctor`` on programs of Keras, on each of its backends, by the tests of every framework."""

from doctor.test_doctor import framework, pytest_generate_tests, test_the_findings, test_there_are_programs_of_both_kinds  # noqa: F401
