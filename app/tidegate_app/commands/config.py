"""tidegate config"""

from __future__ import annotations

from typing import Any

import click

from tidegate_app.options import SETTING_NAMES, SettingsCommand, all_setting_flags, json_option, take_flags

__all__ = ("command",)

_HIDDEN = "(hidden)"


@click.command("config", cls=SettingsCommand)
@click.argument("app", metavar="[APP]", required=False)
@all_setting_flags
@json_option
def command(app: str | None, as_json: bool, **options: Any) -> None:
    """Show every setting, its value and its source.

    A flag takes precedence over the environment, the environment over App(...), and that over the default. Without an
    APP, the settings in code are left out.

    \b
    tidegate config hello.py
    TIDEGATE_COMMIT_INTERVAL=1 tidegate config hello.py --data /var/lib/hello
    """
    from tidegate.settings import variable
    from tidegate.settings_resolution import resolve
    from tidegate_app.app_loader import load_app
    from tidegate_app.output import print_json, print_table
    from tidegate_app.reference import fields

    flags = take_flags(options)
    resolved = load_app(app).define().resolve(flags) if app else resolve({}, flags)
    for sentence in resolved.ignored:
        click.echo(f"Warning: {sentence}", err=True)
    values = {
        name: _HIDDEN if value and fields()[name].metadata["secret"] else value
        for name in SETTING_NAMES
        for value in (getattr(resolved.settings, name),)
    }
    if as_json:
        shown = {
            name: {
                "value": value if isinstance(value, int | float) else str(value),
                "source": resolved.sources[name],
                "variable": variable(name),
                "description": fields()[name].metadata["description"],
            }
            for name, value in values.items()
        }
        print_json(shown)
        return
    print_table(
        ("setting", "value", "from", "variable", "what it does"),
        [
            (name, str(value), resolved.sources[name], variable(name), fields()[name].metadata["description"])
            for name, value in values.items()
        ],
    )
