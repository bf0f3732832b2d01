"""``python -m benchmarks.mutants FOLDER...``: how many planted mistakes ``gradclip lint`` finds in real trainings."""
