"""What becomes of a call of the table: left as it is, left to a person, or rewritten."""

from __future__ import annotations

from dataclasses import replace

from gradclip.migrate.codemod import legacy
from gradclip.migrate.codemod.decision import Rewrite
from gradclip.migrate.codemod.rewrite import rewritten
from gradclip.migrate.objections import OBJECTIONS, keras, loops, shared, sparse
from gradclip.migrate.objections.elsewhere import crossing, lacks, no_native, no_rewrite
from gradclip.natives.targets import targets
from gradclip.source.codes import CODES
from gradclip.source.found import ApiCall, Decision, Finding, family, manual, unchanged
from gradclip.source.sites.calls import look_alike, only_measures
from gradclip.source.source import Edit
from gradclip.source.traps import OF_THE_NATIVE, OF_THE_STEP, steps

__all__ = ["applied"]


def applied(found: ApiCall) -> list[Decision]:
    """Decide on a call of one function with its arguments bound; a rewrite does not hide what is wrong in the call's step."""
    made = _applied(found)
    if not isinstance(made, Rewrite) or found.context.options.to == family(found.api.framework):
        return [made]
    wrong = {one.code: one for one in (*(check(found) for check in OF_THE_STEP), *steps.findings(found)) if one is not None}
    return [made, *(manual(found.call, one, found.api) for one in wrong.values() if _counts(one, found))]


def _applied(found: ApiCall) -> Decision:
    """The decision: a look-alike, a trap, a crossing, or a rewrite."""
    api, options = found.api, found.context.options
    if found.is_own:
        return unchanged(found.call, "GM002", api=api)
    alike = look_alike(found)
    if alike:
        return unchanged(found.call, "GM112", alike, api)
    said = steps.check(found) if only_measures(found) else None
    if said is not None:
        return manual(found.call, said, api)
    if options.to == "gradclip" and not options.norms and only_measures(found):
        return unchanged(found.call, "GM005", api=api)
    native = options.to == family(api.framework)
    if native:
        target = targets(api).get(options.to)
        if target is None and api.status == "current":
            return unchanged(found.call, "GM001", api=api)
    else:
        target = found.target
    checks = OF_THE_NATIVE if native else (loops.check, crossing, *OBJECTIONS) if found.crosses else OBJECTIONS
    cannot = legacy.check(found)
    if cannot is not None and _counts(cannot, found):
        return manual(found.call, cannot, api)
    by_check = {check: one for check in checks if (one := check(found)) is not None and _counts(one, found)}
    stopping = {check: one for check, one in by_check.items() if not (one.changes and options.allow_semantic_change)}
    first = next(iter(stopping.values()), None)
    if target is None or target.by_hand or any(check not in OF_THE_STEP for check in stopping):
        return manual(found.call, first or no_rewrite(found), api)
    findings = [one for check, one in by_check.items() if check not in OF_THE_STEP]
    made = rewritten(found, target)
    if isinstance(made, Finding):
        return manual(found.call, first or made, api)
    without = lacks(found)
    if without and options.strict:
        return manual(found.call, first or no_native(found, without), api)
    return replace(_commented(made, findings, found), lacks=without)


def _counts(finding: Finding, found: ApiCall) -> bool:
    """Whether a finding counts: the user did not ask to ignore its trap."""
    return not (finding.code.startswith("GM1") and finding.code.startswith(tuple(found.context.options.ignore)))


def _commented(decision: Rewrite, findings: list[Finding], found: ApiCall) -> Rewrite:
    """A rewrite; if it changes training, it includes the comment and the assignment for this change."""
    reason = decision.reason or "gradclip's function means the same."
    taken = [text for assumed in (sparse.assumption, shared.assumption, keras.assumption) if (text := assumed(found))]
    decision = replace(decision, assumption="; ".join(taken))
    if not findings:
        return replace(decision, reason=reason)
    finding = findings[0]
    why = finding.reason or CODES[finding.code].reason
    start = found.context.source.start(found.call)
    prefix = (Edit(start, start, finding.prefix),) if finding.prefix else ()
    return replace(decision, reason=why, comment=f"{finding.code} {why}", edits=(*prefix, *decision.edits))
