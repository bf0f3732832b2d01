"""Choose a limit: what each candidate would have done to the norms of a run, and one recommendation with its reason."""

from gradclip.steps.advice.choice import Candidate, Choice, choose

__all__ = ["Candidate", "Choice", "choose"]
