"""The command line as a whole: help, exit codes, and what is not imported for it."""

from __future__ import annotations

import dataclasses
import subprocess
import sys

import click
import pytest
from click.testing import CliRunner

from tidegate.settings import Settings
from tidegate_app.cli import COMMANDS, cli, main

HEAVY = ("faust", "mode", "aiokafka", "rocksdict", "uvloop", "rich", "prometheus_client", "tidegate.app")


def run(*arguments: str) -> int:
    with pytest.raises(SystemExit) as ended:
        main(list(arguments))
    return int(ended.value.code or 0)


@pytest.mark.parametrize("name", COMMANDS)
def test_each_command_has_help_with_examples(name: str) -> None:
    result = CliRunner().invoke(cli, [name, "--help"])

    assert result.exit_code == 0
    command = cli.get_command(click.Context(cli), name)
    assert command is not None
    assert f"tidegate {name}" in result.output or isinstance(command, click.Group)


@pytest.mark.parametrize("name", ["worker", "config"])
def test_help_has_a_line_for_each_setting_and_the_usual_ones_first(name: str) -> None:
    output = CliRunner().invoke(cli, [name, "--help"], terminal_width=100).output
    lines = output.splitlines()
    settings = [item for item in dataclasses.fields(Settings) if not item.metadata["secret"]]
    flags = [f"  --{item.name.replace('_', '-')} " for item in settings]
    found = {flag: [at for at, line in enumerate(lines) if line.startswith(flag)] for flag in flags}

    assert [flag for flag, at in found.items() if len(at) != 1] == []
    told = lines[lines.index("The usual settings:") :]
    assert [line for line in told if line.startswith(" " * 20)] == [], "none goes on in the next line"
    assert max(map(len, lines)) <= 100
    order = [line.removesuffix(":") for line in lines if line.endswith(":") and not line.startswith(" ")]
    assert order[:3] == ["Options", "The usual settings", "The log"]
    assert {"State", "The engine", "Checkpoints", "The worker", "HTTP", "Kafka", "Spark"} <= set(order)
    assert all(found[f"  --{usual} "][0] < lines.index("The log:") for usual in ("broker", "data", "api", "processes"))


def test_help_lists_the_commands() -> None:
    result = CliRunner().invoke(cli, ["--help"])

    assert all(f"  {name}" in result.output and text in result.output for name, text in COMMANDS.items())


@pytest.mark.parametrize(
    "arguments", [["--help"], *([name, "--help"] for name in COMMANDS), ["config"], ["new", "DIRECTORY/project"]]
)
def test_light_commands_do_not_import_heavy_modules(
    arguments: list[str], tmp_path_factory: pytest.TempPathFactory
) -> None:
    directory = str(tmp_path_factory.mktemp("new"))
    given = [argument.replace("DIRECTORY", directory) for argument in arguments]
    heavy = [name for name in HEAVY if not (arguments == ["config"] and name == "rich")]
    code = (
        "import sys\n"
        "from tidegate_app.cli import main\n"
        "try: main(sys.argv[1:])\n"
        "except SystemExit as end: assert not end.code\n"
        f"print([name for name in {heavy!r} if name in sys.modules], file=sys.stderr)\n"
    )

    done = subprocess.run([sys.executable, "-c", code, *given], capture_output=True, text=True, check=True, timeout=60)

    assert done.stderr.strip() == "[]"


def test_a_command_that_is_not_there_is_a_usage_error_with_a_guess(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("wroker") == 2
    assert "Did you mean 'worker'?" in capsys.readouterr().err


def test_a_missing_argument_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("worker") == 2
    assert "Missing argument 'APP'" in capsys.readouterr().err


def test_an_error_is_one_line_and_exit_code_1(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("config", "--partitions", "none") == 1
    printed = capsys.readouterr().err
    assert printed == "Error: the flag --partitions must be a whole number, not 'none'\n"


def test_debug_shows_the_traceback(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIDEGATE_DEBUG", "")
    assert run("config", "--partitions", "none", "--debug") == 1
    assert "Traceback" in capsys.readouterr().err


def test_config_shows_each_effective_setting_and_its_source(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    import json

    monkeypatch.setenv("TIDEGATE_PARTITIONS", "9")
    assert run("config", "--data", "/flag", "--json") == 0

    shown = json.loads(capsys.readouterr().out)
    assert (shown["data"]["value"], shown["data"]["source"]) == ("/flag", "flag")
    assert (shown["partitions"]["value"], shown["partitions"]["source"]) == (9, "environment")
    assert shown["store"]["source"] == "default"
    assert shown["partitions"]["variable"] == "TIDEGATE_PARTITIONS"


def test_config_reports_an_unknown_variable(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    import json

    monkeypatch.setenv("TIDEGATE_COMIT_INTERVAL", "1")
    assert run("config", "--json") == 0

    printed = capsys.readouterr()
    assert json.loads(printed.out)["commit_interval"]["source"] == "default"
    assert printed.err == (
        "Warning: the environment variable TIDEGATE_COMIT_INTERVAL is not a setting and is ignored: "
        "did you mean TIDEGATE_COMMIT_INTERVAL?\n"
    )


def test_the_version_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--version") == 0
    assert capsys.readouterr().out.startswith("tidegate ")
