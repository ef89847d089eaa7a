"""tidegate new"""

from __future__ import annotations

from pathlib import Path

import click

from tidegate_app.options import debug_option

__all__ = ("command",)


@click.command("new")
@click.argument("name", type=click.Path(path_type=Path), metavar="NAME")
@debug_option
def command(name: Path) -> None:
    """Create a project in a new directory NAME: a runnable app, some input, a test, and a README with the next steps.

    \b
    tidegate new hello
    cd hello && tidegate worker app.py
    """
    from tidegate_app.actions.new import write_project

    for path in write_project(name):
        click.echo(f"  {path}")
    click.echo(f"\nNext: cd {name} && tidegate worker app.py; README.md shows what to try next.")
