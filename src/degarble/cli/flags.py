"""The flags that stand for keys of the configuration, listed once for every command that checks a checkpoint.

A command names one parameter of type ConfigurationFlags and is decorated with `with_configuration`; the command line
then shows all flags in its place, and the command gets their values as one object.
"""

from __future__ import annotations

import copy
import inspect
import os
from collections.abc import Callable, Mapping
from operator import getitem
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, get_type_hints

import typer

from degarble.cli.output import complete_fail_on, complete_rule, split_rules

if TYPE_CHECKING:
    from degarble.policy.configuration import Configuration

Command = Callable[..., int]


class ConfigurationFlags(NamedTuple):
    """What the command line says of the configuration; None: nothing."""

    level: Annotated[
        str | None,
        typer.Option(
            help="header: headers and small files; content: values too (default, but header for hf:).",
            show_default=False,
        ),
    ] = None
    engine: Annotated[
        str | None, typer.Option(help="Judge for one engine: vllm, sglang, transformers … \\[@VERSION].")
    ] = None
    tp: Annotated[int | None, typer.Option("--tp", help="Tensor-parallel degree.")] = None
    ep: Annotated[int | None, typer.Option("--ep", help="Expert-parallel degree.")] = None
    dtype: Annotated[str | None, typer.Option(help="The dtype it is served in.")] = None
    select: Annotated[
        list[str] | None,
        typer.Option(help="Only these rules (id or prefix, comma or repeated).", autocompletion=complete_rule),
    ] = None
    ignore: Annotated[list[str] | None, typer.Option(help="Not these rules.", autocompletion=complete_rule)] = None
    known_issues: Annotated[str | None, typer.Option(help="A newer known-issues file.", metavar="FILE")] = None
    fail_on: Annotated[
        str | None,
        typer.Option(
            help="error (default), warning, info or partial: what makes the status 1.", autocompletion=complete_fail_on
        ),
    ] = None
    waivers: Annotated[str | None, typer.Option(help="Waivers with reasons.", metavar="FILE")] = None
    baseline: Annotated[str | None, typer.Option(help="Findings that are known.", metavar="FILE")] = None
    config: Annotated[Path | None, typer.Option(help="Read this degarble.toml and no other.", metavar="FILE")] = None
    isolated: Annotated[bool, typer.Option("--isolated", help="Read no configuration file.")] = False

    def load(self, **more: object) -> Configuration:
        """These flags over environment and files; `more` are keys that only one command has. Raises UsageError."""
        from degarble.policy.configuration import load_configuration

        flags = {
            "select": split_rules(self.select) or None,
            "ignore": split_rules(self.ignore) or None,
            "level": self.level,
            "engine": self.engine,
            "tp": self.tp,
            "ep": self.ep,
            "dtype": self.dtype,
            "known-issues": self.known_issues,
            "fail-on": self.fail_on,
            "waivers": self.waivers,
            "baseline": self.baseline,
            **more,
        }
        return load_configuration(flags, os.environ, folder=Path.cwd(), file=self.config, is_isolated=self.isolated)


NO_FLAGS = ConfigurationFlags()


def with_configuration(**texts: str) -> Callable[[Command], Command]:
    """Show the flags in place of the command's one parameter; `texts` are help texts that mean more there."""

    def expand(command: Command) -> Command:
        hints = get_type_hints(command, include_extras=True)
        name = next(name for name, hint in hints.items() if hint is ConfigurationFlags)
        flags = _parameters(texts)

        def expanded(**given: Any) -> int:
            found = ConfigurationFlags(**{flag.name: given.pop(flag.name) for flag in flags})
            return command(**given, **{name: found})

        parameters: list[inspect.Parameter] = []
        for parameter in inspect.signature(command).parameters.values():
            own = parameter.replace(annotation=hints[parameter.name])
            parameters += flags if parameter.name == name else [own]
        expanded.__doc__, expanded.__name__ = command.__doc__, command.__name__
        expanded.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        expanded.__dict__["__signature__"] = inspect.Signature(parameters, return_annotation=int)
        return expanded

    return expand


def _parameters(texts: Mapping[str, str]) -> list[inspect.Parameter]:
    """One for each flag."""
    hints = get_type_hints(ConfigurationFlags, include_extras=True)
    return [
        inspect.Parameter(
            name,
            inspect.Parameter.POSITIONAL_OR_KEYWORD,
            default=default,
            annotation=_told(hints[name], texts[name]) if name in texts else hints[name],
        )
        for name, default in ConfigurationFlags._field_defaults.items()
    ]


def _told(hint: Any, text: str) -> Any:
    """The same option with another help text."""
    option = copy.copy(hint.__metadata__[0])
    option.help = text
    return getitem(Annotated, (hint.__origin__, option))
