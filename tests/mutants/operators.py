"""All the small mistakes that could have been made in a module, each as an edit of its text.

An edit never touches what no test can or should see: docstrings, annotations, log lines, messages, `__repr__`, one
unit in a thousand of a time, and whether a random number is equal to its bound.
"""

from __future__ import annotations

import ast
import copy
import re
from collections.abc import Iterator
from typing import NamedTuple

_COMPARISONS: dict[type[ast.cmpop], tuple[type[ast.cmpop], ...]] = {
    ast.Lt: (ast.LtE, ast.GtE),
    ast.LtE: (ast.Lt, ast.Gt),
    ast.Gt: (ast.GtE, ast.LtE),
    ast.GtE: (ast.Gt, ast.Lt),
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
    ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
}
_OR_EQUAL: dict[type[ast.cmpop], tuple[type[ast.cmpop], ...]] = {
    op: (ast.LtE, ast.Lt) if op in (ast.Lt, ast.LtE) else (ast.GtE, ast.Gt) for op in _COMPARISONS
}
_DRAWN = {"random", "monotonic", "perf_counter"}
"""Functions whose result is exactly a given number about once in the lifetime of the machine."""
_ARITHMETIC: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.FloorDiv: ast.Mult,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
}
_UNSEEN_FUNCTIONS = {"__repr__", "__str__", "__del__"}
_UNSEEN_NAMES = {"__all__", "__slots__", "_EXAMPLES"}
_LOGGERS = {"_log", "log", "logger", "_logger", "LOG", "logging", "warnings"}
_LARGE = 1000
"""A number from here on is rather a size or a limit than a count: one more or less may well change nothing."""
_TIME_NAME = re.compile(r"_M?S(_M(AX|IN))?$")


class Edit(NamedTuple):
    kind: str
    line: int
    start: int
    """Byte positions in the text."""
    end: int
    old: str
    new: str
    is_suspect: bool
    """Likely to change nothing that can be seen: such survivors are listed apart."""


def edits_of(source: str) -> list[Edit]:
    """Every edit of the module that changes its code at all."""
    found = list(_Finder(source).module())
    unique = {(edit.start, edit.end, edit.new): edit for edit in found if edit.old != edit.new}
    return list(unique.values())


def apply(source: str, edit: Edit) -> str:
    data = source.encode()
    return (data[: edit.start] + edit.new.encode() + data[edit.end :]).decode()


def lines_of(source: str, edit: Edit) -> tuple[str, str]:
    """The lines the edit touches, without it and with it, each on one line."""
    data = source.encode()
    first = data.rfind(b"\n", 0, edit.start) + 1
    last = data.find(b"\n", edit.end)
    rest = data[edit.end : last if last >= 0 else len(data)]
    before = data[first : edit.end] + rest
    after = data[first : edit.start] + edit.new.encode() + rest
    return " ".join(before.decode().split()), " ".join(after.decode().split())


class _Finder:
    def __init__(self, source: str) -> None:
        self._tree = ast.parse(source)
        self._data = source.encode()
        self._line_starts = [0]
        for line in self._data.splitlines(keepends=True):
            self._line_starts.append(self._line_starts[-1] + len(line))
        codes = {n.attr for n in ast.walk(self._tree) if isinstance(n, ast.Attribute) and _is_error_code(n)}
        self._error_codes = sorted(codes | {"UNKNOWN_SERVER_ERROR", "INVALID_REQUEST"})

    def module(self) -> Iterator[Edit]:
        yield from self._block(self._tree.body)

    # --- statements -------------------------------------------------------------------------------------------------

    def _block(self, body: list[ast.stmt]) -> Iterator[Edit]:
        for statement in body:
            yield from self._statement(statement)

    def _statement(self, node: ast.stmt) -> Iterator[Edit]:
        match node:
            case ast.Import() | ast.ImportFrom() | ast.Global() | ast.Nonlocal() | ast.Pass() | ast.Assert():
                return
            case ast.Expr(value=ast.Constant()):
                return
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                if node.name not in _UNSEEN_FUNCTIONS and not _is_declaration(node):
                    for default in (*node.args.defaults, *(d for d in node.args.kw_defaults if d is not None)):
                        yield from self._expression(default)
                    yield from self._block(node.body)
                return
            case ast.ClassDef():
                if not any(isinstance(base, ast.Name) and base.id == "Protocol" for base in node.bases):
                    yield from self._block(node.body)
                return
            case ast.If(test=ast.Name(id="TYPE_CHECKING")):
                return
            case ast.Assign() | ast.AnnAssign() if _is_unseen_assignment(node):
                return
            case ast.Raise():
                yield self._edit("deleted statement", node, "pass")
                return
            case ast.Expr(value=value) if _is_logging(value):
                return
        yield from self._whole_statement(node)
        for field, value in ast.iter_fields(node):
            if field == "annotation" or field == "targets" or (field == "target" and not isinstance(node, ast.For)):
                continue
            for item in value if isinstance(value, list) else [value]:
                if isinstance(item, ast.stmt):
                    yield from self._statement(item)
                elif isinstance(item, ast.expr):
                    yield from self._expression(item)
                elif isinstance(item, ast.ExceptHandler | ast.match_case):
                    yield from self._block(item.body)
                elif isinstance(item, ast.withitem):
                    yield from self._expression(item.context_expr)

    def _whole_statement(self, node: ast.stmt) -> Iterator[Edit]:
        match node:
            case ast.Expr(value=ast.Call() | ast.Await(value=ast.Call())) | ast.AugAssign() | ast.Delete():
                yield self._edit("deleted statement", node, "pass")
            case ast.Assign(targets=[ast.Attribute() | ast.Subscript()]):
                yield self._edit("deleted statement", node, "pass", suspect=_is_none(node.value))
            case ast.Continue():
                yield self._edit("deleted statement", node, "pass")
            case ast.Break():
                yield self._edit("deleted statement", node, "pass")
            case ast.Return(value=None):
                yield self._edit("deleted statement", node, "pass", suspect=True)
        if isinstance(node, ast.AugAssign) and type(node.op) in _ARITHMETIC:
            changed = copy.copy(node)
            changed.op = _ARITHMETIC[type(node.op)]()
            yield self._edit("arithmetic", node, ast.unparse(changed))
        if isinstance(node, ast.If | ast.While) and not isinstance(node.test, ast.Constant | ast.Compare | ast.UnaryOp):
            yield self._edit("condition", node.test, f"not ({ast.unparse(node.test)})")

    # --- expressions ------------------------------------------------------------------------------------------------

    def _expression(self, node: ast.expr) -> Iterator[Edit]:
        if isinstance(node, ast.JoinedStr) or _is_logging(node):
            return
        match node:
            case ast.Compare():
                for index, op in enumerate(node.ops):
                    sides = (node.left, *node.comparators)[index : index + 2]
                    for other in _COMPARISONS[type(op)]:
                        if other in _OR_EQUAL[type(op)] and any(map(_is_drawn, sides)):
                            continue
                        changed = copy.copy(node)
                        changed.ops = [*node.ops[:index], other(), *node.ops[index + 1 :]]
                        yield self._edit("comparison", node, f"({ast.unparse(changed)})")
            case ast.BoolOp():
                swapped = ast.BoolOp(ast.Or() if isinstance(node.op, ast.And) else ast.And(), node.values)
                yield self._edit("and/or", node, f"({ast.unparse(swapped)})")
            case ast.BinOp(op=ast.Div(), right=ast.Constant(value=1000)):
                yield from self._expression(node.left)  # milliseconds to seconds
                return
            case ast.BinOp() if type(node.op) in _ARITHMETIC and not _is_text(node):
                swapped_op = ast.BinOp(node.left, _ARITHMETIC[type(node.op)](), node.right)
                yield self._edit("arithmetic", node, f"({ast.unparse(swapped_op)})")
            case ast.UnaryOp(op=ast.Not()):
                yield self._edit("not", node, f"({ast.unparse(node.operand)})")
            case ast.Constant(value=bool()):
                yield self._edit("constant", node, str(not node.value))
            case ast.Constant(value=int()):
                yield self._edit("constant", node, str(node.value + 1), suspect=node.value >= _LARGE)
                if node.value > 0:
                    yield self._edit("constant", node, str(node.value - 1), suspect=node.value >= _LARGE)
            case ast.Attribute() if _is_error_code(node):
                for other_code in self._error_codes:
                    if other_code != node.attr:
                        yield self._edit("error code", node, f"ErrorCode.{other_code}")
            case ast.Set(elts=elements) | ast.Tuple(elts=elements) if len(elements) > 1:
                if isinstance(node, ast.Set) or all(isinstance(e, ast.Attribute | ast.Constant) for e in elements):
                    yield from self._without_one(node, elements)
            case ast.Dict(keys=keys) if len(keys) > 1:
                for index in range(len(keys)):
                    rest = ast.Dict(keys[:index] + keys[index + 1 :], node.values[:index] + node.values[index + 1 :])
                    yield self._edit("removed element", node, ast.unparse(rest))
            case ast.IfExp(test=test) if not isinstance(test, ast.Compare | ast.UnaryOp):
                yield self._edit("condition", test, f"(not ({ast.unparse(test)}))")
        yield from self._inside(node)

    def _inside(self, node: ast.expr) -> Iterator[Edit]:
        for child in ast.iter_child_nodes(node):
            match child:
                case ast.expr():
                    yield from self._expression(child)
                case ast.keyword():
                    yield from self._expression(child.value)
                case ast.comprehension():
                    yield from self._expression(child.iter)
                    for condition in child.ifs:
                        yield from self._expression(condition)

    def _without_one(self, node: ast.Set | ast.Tuple, elements: list[ast.expr]) -> Iterator[Edit]:
        for index in range(len(elements)):
            rest = copy.copy(node)
            rest.elts = elements[:index] + elements[index + 1 :]
            yield self._edit("removed element", node, ast.unparse(rest))

    def _edit(self, kind: str, node: ast.stmt | ast.expr, new: str, *, suspect: bool = False) -> Edit:
        assert node.end_lineno is not None and node.end_col_offset is not None
        start = self._line_starts[node.lineno - 1] + node.col_offset
        end = self._line_starts[node.end_lineno - 1] + node.end_col_offset
        return Edit(kind, node.lineno, start, end, self._data[start:end].decode(), new, suspect)


def _is_error_code(node: ast.Attribute) -> bool:
    return isinstance(node.value, ast.Name) and node.value.id == "ErrorCode" and node.attr.isupper()


def _is_drawn(node: ast.expr) -> bool:
    """A random number, or the machine's own clock: no test could make it equal to something."""
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _DRAWN


def _is_none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def _is_logging(node: ast.expr) -> bool:
    if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
        return False
    target = node.func.value
    name = target.id if isinstance(target, ast.Name) else target.attr if isinstance(target, ast.Attribute) else ""
    return name in _LOGGERS


def _is_text(node: ast.BinOp) -> bool:
    """Texts and bytes are put together with +, and types with |."""
    for side in (node.left, node.right):
        if isinstance(side, ast.JoinedStr) or (isinstance(side, ast.Constant) and isinstance(side.value, str | bytes)):
            return True
        if isinstance(side, ast.BinOp) and _is_text(side):
            return True
        if isinstance(node.op, ast.BitOr) and (_is_none(side) or isinstance(side, ast.Subscript)):
            return True
        if (
            isinstance(node.op, ast.BitOr)
            and isinstance(side, ast.Name)
            and (side.id[0].isupper() or side.id in _TYPES)
        ):
            return True
    return False


_TYPES = {"int", "str", "bytes", "bytearray", "memoryview", "float", "bool", "list", "dict", "tuple", "type", "object"}


def _is_declaration(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """An overload, an abstract method, a body of three dots."""
    names = {d.id if isinstance(d, ast.Name) else getattr(d, "attr", "") for d in node.decorator_list}
    if names & {"overload", "abstractmethod"}:
        return True
    # A constructor may end with the docstring of an attribute, and is none for that.
    return all(isinstance(part, ast.Expr) and isinstance(part.value, ast.Constant) for part in node.body)


def _is_unseen_assignment(node: ast.Assign | ast.AnnAssign) -> bool:
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    names = [target.id for target in targets if isinstance(target, ast.Name)]
    if any(name in _UNSEEN_NAMES for name in names):
        return True
    if isinstance(node, ast.AnnAssign) and isinstance(node.annotation, ast.Name) and node.annotation.id == "TypeAlias":
        return True
    value = node.value
    if isinstance(value, ast.Constant) and isinstance(value.value, int) and value.value >= _LARGE:
        return any(_TIME_NAME.search(name) for name in names)
    if isinstance(value, ast.Call):
        function = value.func
        name = function.id if isinstance(function, ast.Name) else getattr(function, "attr", "")
        return name in {"TypeVar", "NewType", "ParamSpec", "getLogger", "get_logger"}
    return False
