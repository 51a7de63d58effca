"""`ottla completion`: what a shell needs to complete commands, verbs and options."""

from __future__ import annotations

import re
from collections.abc import Sequence
from importlib import import_module

from ottla.cli.parsing import CommandParser

_SHELLS = {
    "bash": (
        "_ottla() {\n"
        "    local IFS=$'\\n'\n"
        '    COMPREPLY=($(compgen -W "$(ottla completion words -- "${COMP_WORDS[@]:1:COMP_CWORD-1}")" '
        '-- "${COMP_WORDS[COMP_CWORD]}"))\n'
        "}\n"
        "complete -o default -F _ottla ottla\n"
    ),
    "zsh": (
        "(( $+functions[compdef] )) || { autoload -U compinit && compinit }\n"
        "_ottla() {\n"
        '    local -a found=(${(f)"$(ottla completion words -- "${(@)words[2,CURRENT-1]}")"})\n'
        "    (( $#found )) && compadd -a found || _files\n"
        "}\n"
        "compdef _ottla ottla\n"
    ),
    "fish": "complete -c ottla -a '(ottla completion words -- (commandline -opc)[2..-1])'\n",
}
_EXAMPLES = (
    'eval "$(ottla completion bash)"',
    "ottla completion fish > ~/.config/fish/completions/ottla.fish",
)


def parser() -> CommandParser:
    made = CommandParser(
        "completion",
        "Print what a shell needs to complete ottla's commands.",
        words="bash|zsh|fish",
        examples=_EXAMPLES,
        connects=False,
    )
    return made


def main(arguments: list[str]) -> int:
    if arguments[:1] == ["words"]:
        print("\n".join(candidates([word for word in arguments[1:] if word != "--"])))
        return 0
    made = parser()
    options = made.read(arguments)
    if len(options.words) != 1 or options.words[0] not in _SHELLS:
        made.error(f"name one shell: {', '.join(sorted(_SHELLS))}")
    print(_SHELLS[options.words[0]], end="")
    return 0


def candidates(words: Sequence[str]) -> list[str]:
    """What may come after these words: commands, then verbs and options of one."""
    from ottla.cli.main import COMMANDS

    if not words:
        return list(COMMANDS)
    command = COMMANDS.get(words[0])
    if command is None:
        return []
    module = import_module(command.module)
    if not hasattr(module, "parser"):
        return list(module.VERBS) if len(words) == 1 else _options_in(module.help_of(words[1]))
    if words[0] == "completion":
        return list(_SHELLS) if len(words) == 1 else []
    made = module.parser()
    shown = made.format_help()
    values = {name: action.choices for action in made._actions if action.choices for name in action.option_strings}
    if words[-1] in values:
        return list(map(str, values[words[-1]]))
    verbs = list(made.verbs) if isinstance(made, CommandParser) and len(words) == 1 else []
    return [*verbs, *_options_in(shown)]


def _options_in(shown: str) -> list[str]:
    """Of a command's help; its examples may have those of others."""
    return sorted(set(re.findall(r"--[a-z][a-z.-]*", re.split(r"\n *Examples:", shown)[0])))
