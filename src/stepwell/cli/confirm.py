"""Asking before something is destroyed."""

import sys

import click

from stepwell.cli.render import safe


def confirm(yes: bool, question: str) -> None:
    """Ask on a terminal; without one, `--yes` has to be given.

    Raises:
        UsageError: there is nobody to ask. Abort: the answer is no.
    """
    if yes:
        return
    question = safe(question)
    if not sys.stdin.isatty():
        raise click.UsageError(f"{question} There is nobody to ask: repeat it with --yes")
    if not click.confirm(question, err=True):
        raise click.Abort
