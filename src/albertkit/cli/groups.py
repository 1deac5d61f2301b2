"""A group of verbs of which one need not be named."""

from typing import Any

from typer.core import TyperGroup


class DefaultVerbGroup(TyperGroup):
    """Reads what names none of its verbs as arguments of the first one.

    A file or folder with the name of a verb is meant when it is written with its folder: `./attention`.
    """

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Put the name of the first verb before arguments that begin otherwise, help apart."""
        if args and args[0] not in {*self.commands, *ctx.help_option_names}:
            args = [next(iter(self.commands)), *args]
        return super().parse_args(ctx, args)

    def shell_complete(self, ctx: Any, incomplete: str) -> list[Any]:
        """Offer the verbs, and what the first one takes as its first argument."""
        first, *_ = self.commands.values()
        argument, *_ = first.params
        return [*super().shell_complete(ctx, incomplete), *argument.shell_complete(ctx, incomplete)]
