"""Any command as an agent, by a template: `my-agent --dir {workspace} {prompt}`. Its output is text, and its exit status what it says."""

from __future__ import annotations

import shlex

from keepfast.errors import UsageError
from keepfast.propose.command.base import Spec, Words, check_names


def spec(name: str, template: str, keys: tuple[str, ...] = ()) -> Spec:
    """An agent from a command line as one would type it; no shell reads it. `keys`: variables of the environment that it may see.

    A word with a name that has no value is left out. UsageError when the template cannot be one.
    """
    try:
        program, *words = shlex.split(template)
    except ValueError as error:
        raise UsageError(
            f"the command of the agent `{name}` cannot be read: {error}", next_step="it needs a program, then its words"
        ) from None
    check_names(words)
    if "{" in program:
        raise UsageError(f"the command of the agent `{name}` must begin with a program, not with {program}")
    return Spec(name=name, program=program, argv=tuple(Words((word,)) for word in words), keys=keys, last_event=False)
