"""Whether an option was typed, and not taken from the environment or a default."""

import click
from click.core import ParameterSource


def is_typed(option: str, context: click.Context | None = None) -> bool:
    """Whether an option stands on the command line; of this command, unless a context is given."""
    context = context or click.get_current_context()
    return context.get_parameter_source(option) is ParameterSource.COMMANDLINE
