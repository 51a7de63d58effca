"""Turns a module for asyncio into one for threads.

A call that awaits becomes one that waits: handed on to the asyncio client inside (`self._inner`), or with its body as
it is, in which `await` has become a call. What really differs is in modules written by hand, as base classes of what is
written here: they have `_call`, which waits for a coroutine, `_do`, which runs a function in the loop, and for clients
with another one inside `_begin` and `_close`.
"""

from __future__ import annotations

import ast
import re
import textwrap
from collections.abc import Iterator, Mapping
from typing import NamedTuple, TypeAlias

AIO = "ottla.client.aio"

_WIDTH = 120
_NAMES = {"AsyncIterator": "Iterator", "asynccontextmanager": "contextmanager"}
"""What is called otherwise where nothing is awaited."""

_Method: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef


class Shell(NamedTuple):
    """One module for asyncio, and what becomes of it."""

    path: str
    """Below `aio`, and below `sync`."""
    heads: Mapping[str, str]
    """The classes that there will be, and their first lines."""
    modules: Mapping[str, str] = {}
    """Modules and packages of which there are others for threads."""
    imports: tuple[str, ...] = ()
    """What is not in the source: the base classes."""
    as_they_are: tuple[str, ...] = ()
    """Methods whose bodies are the same but for `await`: what they call has to be there for threads, too."""
    by_hand: tuple[str, ...] = ()
    """Methods that a base class has, or that threads do not need."""
    at_once: tuple[str, ...] = ()
    """What can be asked at any time, whoever runs the loop."""
    left_out: tuple[str, ...] = ()
    """Parameters that only asyncio has."""
    arguments: Mapping[str, str] = {}
    """What the client inside gets in place of an argument."""
    words: tuple[tuple[str, str], ...] = ()
    """What docstrings say otherwise."""


class Translation:
    def __init__(self, shell: Shell, source: str) -> None:
        self._shell = shell
        self._source = source
        self._lines = source.splitlines()
        self._tree = ast.parse(source)
        self._unused_words = dict(shell.words)
        self._module = f"{AIO}.{shell.path.removesuffix('.py').replace('/', '.')}"

    def text(self) -> str:
        origin = f"src/ottla/client/aio/{self._shell.path}"
        parts = [f"# Written by `make generate` from {origin}: change that instead.\n"]
        parts.append(f'"""{self._reworded(ast.get_docstring(self._tree, clean=False) or "", 0)}"""\n')
        parts.append(self._imports())
        parts += [
            self._class(node)
            for node in self._tree.body
            if isinstance(node, ast.ClassDef) and node.name in self._shell.heads
        ]
        if self._unused_words:
            raise ValueError(f"{origin} does not say: {', '.join(self._unused_words)}")
        text = "\n".join(parts)
        for name, other in _NAMES.items():
            text = re.sub(rf"\b{name}\b", other, text)
        return text

    # Imports

    def _imports(self) -> str:
        """All that the source has, and what it defines itself; what is not needed goes when the text is formatted."""
        lines = list(self._shell.imports)
        own = []
        for_types = []
        for node in self._tree.body:
            match node:
                case ast.ImportFrom(module=str(module)):
                    lines.append(self._segment(node).replace(module, self._home_of(module)))
                case ast.Import():
                    lines.append(self._segment(node))
                case ast.If():
                    for_types.append(self._segment(node))
                case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                    own.append(f"{name} as Async{name}" if name in self._shell.heads else name)
                case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)):
                    own.append(name)
        lines += [f"from {self._module} import {name}" for name in own]
        return "\n".join([*lines, *for_types]) + "\n"

    def _home_of(self, module: str) -> str:
        for aio, threads in self._shell.modules.items():
            if module == aio or module.startswith(f"{aio}."):
                return threads + module.removeprefix(aio)
        return module

    # Classes

    def _class(self, node: ast.ClassDef) -> str:
        members = list(node.body)
        end = next(number for number in range(node.lineno, members[0].lineno) if self._lines[number - 1].endswith(":"))
        parts = [f"class {self._shell.heads[node.name]}:"]
        if (docstring := ast.get_docstring(node, clean=False)) is not None:
            parts.append(f'    """{self._reworded(docstring, 4)}"""')
            end = members.pop(0).end_lineno or end
        comments: list[str] = []
        for member in members:
            first = _first_line(member)
            between = [line for line in self._lines[end : first - 1] if line.strip().startswith("#")]
            comments = [*between, ""] if between else comments
            end = member.end_lineno or first
            if isinstance(member, (ast.FunctionDef, ast.AsyncFunctionDef)) and self._is_meant(member):
                parts += ["", *comments, self._method(member, node.name)]
                comments = []
        return "\n".join(parts) + "\n"

    def _is_meant(self, method: _Method) -> bool:
        name = method.name
        if name in self._shell.by_hand:
            return False
        return name == "__init__" or not name.startswith("_") or name in self._shell.as_they_are

    def _method(self, method: _Method, owner: str) -> str:
        body = list(method.body)
        head = self._lines[_first_line(method) - 1 : body[0].lineno - 1]
        left_out = tuple(f"{name}:" for name in self._shell.left_out)
        kept = [line for line in head if not line.strip().startswith(left_out)]
        parts = [re.sub(r"\basync def\b", "def", "\n".join(kept))]
        if (docstring := ast.get_docstring(method, clean=False)) is not None:
            parts.append(f'        """{self._reworded(docstring, 8)}"""')
            body.pop(0)
        if method.name in self._shell.as_they_are:
            parts.append(self._without_await(body))
        else:
            parts += [f"        {line}" for line in self._handed_on(method, owner)]
        return "\n".join(parts)

    def _handed_on(self, method: _Method, owner: str) -> Iterator[str]:
        arguments = f"({', '.join(self._arguments(method.args))})"
        if method.name == "__init__":
            yield f"self._inner = Async{owner}{arguments}"
            yield "self._begin()"
            return
        if method.name == "close":
            yield f"self._close{arguments}"
            return
        is_property = any(ast.unparse(decorator) == "property" for decorator in method.decorator_list)
        inner = f"self._inner.{method.name}{'' if is_property else arguments}"
        if method.name in self._shell.at_once:
            call = inner
        elif isinstance(method, ast.AsyncFunctionDef):
            call = f"self._call({inner})"
        else:
            call = f"self._do(lambda: {inner})"
        is_silent = method.returns is not None and ast.unparse(method.returns) == "None"
        yield call if is_silent else f"return {call}"

    def _arguments(self, given: ast.arguments) -> Iterator[str]:
        instead = self._shell.arguments
        for argument in [*given.posonlyargs, *given.args]:
            if argument.arg != "self":
                yield instead.get(argument.arg, argument.arg)
        for argument in given.kwonlyargs:
            if argument.arg not in self._shell.left_out:
                yield f"{argument.arg}={instead.get(argument.arg, argument.arg)}"
        if given.kwarg is not None:
            yield f"**{given.kwarg.arg}"

    def _without_await(self, body: list[ast.stmt]) -> str:
        """The text of the statements. What the client itself can be asked waits already; all else is waited for."""
        if not body:
            return ""
        start, end = body[0].lineno, body[-1].end_lineno or 0
        lines = self._lines[start - 1 : end]
        awaits = [node for statement in body for node in ast.walk(statement) if isinstance(node, ast.Await)]
        for node in sorted(awaits, key=lambda node: (node.lineno, node.col_offset), reverse=True):
            value = node.value
            last, close = (value.end_lineno or 0) - start, value.end_col_offset or 0
            is_own = isinstance(value, ast.Call) and re.fullmatch(r"self\.\w+", ast.unparse(value.func))
            if not is_own:
                lines[last] = lines[last][:close] + ")" + lines[last][close:]
            here = node.lineno - start
            opening = "" if is_own else "self._call("
            lines[here] = lines[here][: node.col_offset] + opening + lines[here][value.col_offset :]
        return "\n".join(lines)

    # Docstrings

    def _reworded(self, docstring: str, indent: int) -> str:
        """With the words that are meant for threads; a paragraph that has any is wrapped again."""
        margin = " " * indent
        given = docstring.strip().split("\n\n")
        paragraphs = [self._paragraph(text, margin) for text in given]
        if paragraphs == given:
            return docstring
        text = "\n\n".join(filter(None, paragraphs)).strip()
        return f"{text}\n{margin}" if "\n" in text else text

    def _paragraph(self, text: str, margin: str) -> str:
        said = " ".join(text.split())
        changed = said
        for words, others in self._shell.words:
            if words in changed:
                changed = changed.replace(words, others)
                self._unused_words.pop(words, None)
        if changed == said:
            return text
        # As if each were the first, which has quotation marks in front.
        quotes = '"""'
        lines = textwrap.fill(changed, _WIDTH, initial_indent=margin + quotes, subsequent_indent=margin)
        return lines.replace(quotes, "", 1) if changed else ""

    def _segment(self, node: ast.stmt) -> str:
        return ast.get_source_segment(self._source, node) or ""


def _first_line(node: ast.stmt) -> int:
    decorators = node.decorator_list if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)) else []
    return min([node.lineno, *(decorator.lineno for decorator in decorators)])
