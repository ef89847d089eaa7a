"""tidegate doctor"""

from __future__ import annotations

from typing import Any

import click

from tidegate_app.options import SETTING_NAMES, json_option, setting_flags, take_flags

__all__ = ("command",)


@click.command("doctor")
@click.argument("app", metavar="[APP]", required=False)
@json_option
@setting_flags("broker", "data", "api", "api_tokens_file")
def command(app: str | None, as_json: bool, **options: Any) -> int:
    """Check that this machine meets the requirements of an APP: Python, Java, disk, broker, ports, clock.

    Without an APP it checks the defaults and the environment's settings. Exits with 1 if it finds an error.

    \b
    tidegate doctor
    tidegate doctor hello.py --broker kafka://127.0.0.1:9092
    """
    from tidegate.settings_resolution import resolve
    from tidegate_app.actions.doctor import examine
    from tidegate_app.output import print_json

    flags = take_flags(options, SETTING_NAMES)
    if app is None:
        resolved = resolve({}, flags)
    else:
        from tidegate_app.app_loader import load_app

        resolved = load_app(app).define().resolve(flags)
    findings = list(examine(resolved))
    if as_json:
        print_json([finding._asdict() for finding in findings])
    else:
        for finding in findings:
            sign, colour = {"ok": ("✓", "green"), "warning": ("!", "yellow"), "error": ("✗", "red")}[finding.verdict]
            click.echo(f"{click.style(sign, fg=colour)} {finding.what:<9} {finding.says}")
    return int(any(finding.verdict == "error" for finding in findings))
