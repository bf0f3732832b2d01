"""The lines that ``gradclip explain`` prints for Keras, by the tests of every framework."""

from explain.test_printed_lines import (  # noqa: F401
    pytest_generate_tests,
    test_a_printed_line_runs,
    test_there_are_lines_of_natives_and_of_gradclip,
)
