"""Small changes to a module: which there are, and the module compiled with one of them.

Only the bodies of functions are changed. Messages, annotations, docstrings and assertions are left as they are: a test
that tells two messages apart, or that removes an assertion which always holds, says nothing about the code.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import CodeType

COMPARISONS = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
OPERATORS = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.FloorDiv,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
    ast.BitXor: ast.BitAnd,
}
CALLS = {"min": "max", "max": "min", "any": "all", "all": "any"}
Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True, order=True)
class Mutant:
    """One change: `before` became `after`, at a line of a function that a module or a class of it defines."""

    path: str
    line: int
    at: int
    """The place of the changed node in the function, in the order of `ast.walk`."""
    kind: str
    function: str
    function_line: int
    before: str
    after: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line} {self.function}: {self.before}  →  {self.after}"


def mutants(path: Path, name: str) -> Iterator[Mutant]:
    """All changes of a file, which is called `name` in reports."""
    for function, qualname in functions(ast.parse(path.read_text("utf-8"))):
        for at, node in enumerate(ast.walk(function)):
            if not hasattr(node, "lineno") or at in untouched(function):
                continue
            for kind in kinds(node):
                changed = copy.deepcopy(node)
                after = change(changed, kind)
                line = first_line(function)
                yield Mutant(name, node.lineno, at, kind, qualname, line, shown(node), shown(after))


def mutated(path: Path, mutant: Mutant) -> CodeType:
    """The code of the function with the change in it."""
    tree = ast.parse(path.read_text("utf-8"))
    function = next(each for each, _ in functions(tree) if first_line(each) == mutant.function_line)
    before = find_code(compile(tree, str(path), "exec"), mutant.function, mutant.function_line)
    for at, node in enumerate(ast.walk(function)):
        if at == mutant.at:
            replaced = change(node, mutant.kind)
            if replaced is not node:
                Replace(node, replaced).visit(function)
            break
    if "__class__" in before.co_freevars:  # without its call of `super` it could not take the place of the other code
        function.body += ast.parse("if False: __class__").body
    code = compile(ast.fix_missing_locations(tree), str(path), "exec")
    return find_code(code, mutant.function, mutant.function_line)


def functions(tree: ast.Module) -> Iterator[tuple[Function, str]]:
    """The functions of a module and of its classes, with their qualified names."""
    for node in tree.body:
        if isinstance(node, Function):
            yield node, node.name
        elif isinstance(node, ast.ClassDef):
            for each in node.body:
                if isinstance(each, Function):
                    yield each, f"{node.name}.{each.name}"


def first_line(function: Function) -> int:
    """As `co_firstlineno` has it: that of the first decorator."""
    return min(each.lineno for each in (function, *function.decorator_list))


def find_code(code: CodeType, qualname: str, line: int) -> CodeType:
    for each in code.co_consts:
        if isinstance(each, CodeType):
            if each.co_qualname == qualname and each.co_firstlineno == line:
                return each
            if qualname.startswith(each.co_qualname + "."):
                return find_code(each, qualname, line)
    raise LookupError(qualname)


def untouched(function: Function) -> set[int]:
    """Places of nodes that no test should have to tell apart."""
    left: set[int] = set()
    for node in ast.walk(function):
        if isinstance(node, ast.Assert):
            left |= ids(node)
        elif isinstance(node, ast.Raise):
            left |= ids(node) - {id(node)}
        elif isinstance(node, ast.AnnAssign):
            left |= ids(node.annotation)
        elif isinstance(node, ast.JoinedStr):
            left |= ids(node)
    for part in (*function.decorator_list, function.args, *filter(None, [function.returns])):
        left |= ids(part)
    return {at for at, node in enumerate(ast.walk(function)) if id(node) in left}


def ids(node: ast.AST) -> set[int]:
    return {id(each) for each in ast.walk(node)}


def kinds(node: ast.AST) -> Iterator[str]:
    """The changes that can be made to this node itself."""
    match node:
        case ast.Compare():
            yield from (f"compare {at}" for at, op in enumerate(node.ops) if type(op) in COMPARISONS)
        case ast.BoolOp():
            yield "and-or"
        case ast.UnaryOp(op=ast.Not()):
            yield "drop-not"
        case ast.BinOp() if type(node.op) in OPERATORS:
            yield "operator"
        case ast.Constant(value=bool() | int() | float()):
            yield "constant"
        case ast.Call(func=ast.Name(id=name)) if name in CALLS:
            yield "call"
        case ast.If() | ast.While() | ast.IfExp() if isinstance(node.test, ast.Name | ast.Attribute | ast.Call):
            yield "negate"
        case ast.AugAssign() if type(node.op) in OPERATORS:
            yield from ("operator", "delete")
        case ast.Assign(targets=[ast.Attribute() | ast.Subscript()]):
            yield "delete"
        case ast.Expr(value=ast.Call()) | ast.Delete() | ast.Raise():
            yield "delete"
        case ast.Continue() | ast.Break():
            yield "continue-break"


def change(node: ast.AST, kind: str) -> ast.AST:
    """Make a change in place; where another kind of node is needed, the answer is that one."""
    word, _, number = kind.partition(" ")
    return CHANGES[word](node, int(number or 0))


def _compare(node: ast.Compare, at: int) -> ast.AST:
    node.ops[at] = COMPARISONS[type(node.ops[at])]()
    return node


def _and_or(node: ast.BoolOp, _: int) -> ast.AST:
    node.op = ast.Or() if isinstance(node.op, ast.And) else ast.And()
    return node


def _operator(node: ast.BinOp | ast.AugAssign, _: int) -> ast.AST:
    node.op = OPERATORS[type(node.op)]()
    return node


def _constant(node: ast.Constant, _: int) -> ast.AST:
    node.value = not node.value if isinstance(node.value, bool) else node.value + 1
    return node


def _call(node: ast.Call, _: int) -> ast.AST:
    assert isinstance(node.func, ast.Name)
    node.func.id = CALLS[node.func.id]
    return node


def _negate(node: ast.If | ast.While | ast.IfExp, _: int) -> ast.AST:
    node.test = ast.UnaryOp(ast.Not(), node.test)
    return node


CHANGES: dict[str, Callable[..., ast.AST]] = {
    "compare": _compare,
    "and-or": _and_or,
    "operator": _operator,
    "constant": _constant,
    "call": _call,
    "negate": _negate,
    "drop-not": lambda node, _: node.operand,
    "delete": lambda node, _: ast.copy_location(ast.Pass(), node),
    "continue-break": lambda node, _: ast.copy_location(
        ast.Break() if isinstance(node, ast.Continue) else ast.Continue(), node
    ),
}


class Replace(ast.NodeTransformer):
    def __init__(self, old: ast.AST, new: ast.AST) -> None:
        self.old, self.new = old, new

    def visit(self, node: ast.AST) -> ast.AST:
        return self.new if node is self.old else self.generic_visit(node)


def shown(node: ast.AST) -> str:
    """The first line of a node as text."""
    if isinstance(node, ast.If | ast.While):
        return f"{type(node).__name__.lower()} {ast.unparse(node.test)}"
    return ast.unparse(ast.fix_missing_locations(node)).splitlines()[0]
