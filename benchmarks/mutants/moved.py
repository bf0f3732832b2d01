"""The clip and the step moved into a function, a class, another file, or behind settings, in the right and the wrong order."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterator

from benchmarks.mutants.edits import Mutant, after_imports, call_name, clone, imports, root, statement, text_with
from benchmarks.mutants.rounds import Step

__all__ = ["moves"]

FUNCTION, CLASS, MODULE = "finish_the_step", "StepFinisher", "finishing"


class _Arguments(ast.NodeTransformer):
    """Names instead of what a moved statement uses of its place: ``self.model`` becomes ``model``."""

    def __init__(self, known: set[str]) -> None:
        self.known = known
        self.names: dict[str, ast.expr] = {}
        self.stored = False

    def name(self, node: ast.expr) -> ast.expr:
        text = ast.unparse(node)
        wanted = text.rpartition(".")[2]
        wanted = "trainer" if wanted == "self" else wanted
        while wanted in self.known or (wanted in self.names and ast.unparse(self.names[wanted]) != text):
            wanted += "_"
        self.names[wanted] = node
        return ast.Name(wanted)

    def visit_Call(self, node: ast.Call) -> ast.AST:
        if isinstance(node.func, ast.Attribute):
            node.func.value = self.visit(node.func.value)  # the method itself is no argument
        else:
            node.func = self.visit(node.func)
        node.args = [self.visit(x) for x in node.args]
        node.keywords = [self.visit(x) for x in node.keywords]
        return node

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        if not isinstance(node.ctx, ast.Load):
            self.stored = True
            return node
        first = root(node)
        return self.name(node) if first and first not in self.known else node if first else self.generic_visit(node)

    def visit_Name(self, node: ast.Name) -> ast.AST:
        if not isinstance(node.ctx, ast.Load):
            self.stored = True
            return node
        return node if node.id in self.known else self.name(node)


def _known(tree: ast.Module) -> set[str]:
    defined = {x.name for x in tree.body if isinstance(x, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)}
    return set(imports(tree)) | defined | set(dir(builtins))


def _body(step: Step, order: tuple[str, ...]) -> tuple[list[ast.stmt], dict[str, ast.expr]] | None:
    """Return the statements in terms of arguments, and the arguments; None if they store names that others may need."""
    arguments = _Arguments(_known(step.tree))
    body = []
    for role in order:
        one = step.at[role]
        if isinstance(one, ast.Assign) and len(one.targets) == 1 and isinstance(one.targets[0], ast.Name):
            one = ast.Expr(one.value)  # the norm of the clip, for a log
        body.append(arguments.visit(clone(one)))
    awaits = any(
        isinstance(x, ast.Await | ast.Yield | ast.Return | ast.Break | ast.Continue) for y in body for x in ast.walk(y)
    )
    return None if arguments.stored or awaits else (body, arguments.names)


def _function(body: list[ast.stmt], names: list[str], name: str = FUNCTION) -> ast.FunctionDef:
    made = statement(f"def {name}({', '.join(names)}): pass")
    assert isinstance(made, ast.FunctionDef)
    made.body = body
    return made


def _class(body: list[ast.stmt], names: list[str]) -> ast.ClassDef:
    made = statement(f"class {CLASS}:\n    def __init__(self, {', '.join(names)}): pass")
    assert isinstance(made, ast.ClassDef)
    assert isinstance(made.body[0], ast.FunctionDef)
    made.body[0].body = [statement(f"self.{name} = {name}") for name in names]

    class Own(ast.NodeTransformer):
        def visit_Name(self, node: ast.Name) -> ast.AST:
            return ast.Attribute(ast.Name("self"), node.id) if node.id in names else node

    made.body.append(_function([Own().visit(x) for x in body], ["self"], "finish"))
    return made


def _together(step: Step, new: ast.stmt, call: ast.stmt, instead: str) -> str:
    """Return the module with a definition, and a call in the place of a role; "" puts the call behind the step."""
    block = [x for x in step.block if x is not step.at["clip"] or instead == "clip"]
    i = block.index(step.at[instead or "step"])
    before = list(step.block)
    step.block[:] = [*block[:i], call, *block[i + 1 :]] if instead else [*block[: i + 1], call, *block[i + 1 :]]
    try:
        return text_with(step.tree, [after_imports(step.tree, new)])
    finally:
        step.block[:] = before


def moves(step: Step) -> Iterator[Mutant]:
    """Yield the mutants of a step whose clip, alone or with the step, is moved."""
    if isinstance(step.at["step"], ast.Expr | ast.If):
        for right in (False, True):
            yield from _moved(step, right, "both", ("clip", "step") if right else ("step", "clip"))
            yield from _moved(step, right, "the clip", ("clip",))
    for right in (False, True):
        if (behind := _settings(step, right)) is not None:
            yield Mutant(f"{_order(right)}, behind **settings", behind, right=right)


def _moved(step: Step, right: bool, what: str, roles: tuple[str, ...]) -> Iterator[Mutant]:
    found = _body(step, roles)
    if found is None or not found[1]:
        return
    body, values = found
    names, given = list(values), list(values.values())

    def together(new: ast.stmt, call: ast.expr) -> str:
        return _together(step, new, ast.Expr(call), "step" if len(roles) > 1 else "clip" if right else "")

    function, call = _function(body, names), ast.Call(ast.Name(FUNCTION), given, [])
    yield Mutant(f"{_order(right)}, {what} in a function", together(clone(function), call), right=right)
    use = ast.Call(ast.Attribute(ast.Call(ast.Name(CLASS), given, []), "finish"), [], [])
    yield Mutant(f"{_order(right)}, {what} in a class", together(_class([clone(x) for x in body], names), use), right=right)
    if (other := _other_file(step.tree, function)) is not None:
        text = together(statement(f"from {MODULE} import {FUNCTION}"), call)
        yield Mutant(f"{_order(right)}, {what} in another file", text, {f"{MODULE}.py": other}, right)


def _order(right: bool) -> str:
    return "right order" if right else "clip after the step"


def _other_file(tree: ast.Module, function: ast.FunctionDef) -> str | None:
    """Return a file with the function and its imports; None if it needs more of the module than imports."""
    used = {x.id for x in ast.walk(function) if isinstance(x, ast.Name)}
    bound = imports(tree)
    if used & (_known(tree) - set(bound) - set(dir(builtins))):
        return None
    needed = list(dict.fromkeys(ast.unparse(bound[name]) for name in bound if name in used))
    return "\n".join([*needed, "", "", ast.unparse(ast.fix_missing_locations(clone(function))), ""])


def _settings(step: Step, right: bool) -> str | None:
    """Return the module with the limit in a dictionary that the clip takes as keyword arguments."""
    call = step.clip
    if not 1 <= len(call.args) <= 2 or call_name(call) != "clip_grad_norm_":
        return None
    args, keywords = call.args, call.keywords
    call.args, call.keywords = args[:1], [ast.keyword(None, ast.Name("CLIP_SETTINGS"))]
    before = list(step.block)
    if not right:
        rest = step.without("clip")
        i = rest.index(step.at["step"]) + 1
        step.block[:] = [*rest[:i], step.at["clip"], *rest[i:]]
    try:
        return text_with(step.tree, [after_imports(step.tree, statement("CLIP_SETTINGS = {'max_norm': 1.0, 'norm_type': 2}"))])
    finally:
        call.args, call.keywords = args, keywords
        step.block[:] = before
