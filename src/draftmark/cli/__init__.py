"""The command line: arguments, wiring, printing, exit codes."""

import signal
import sys
from collections.abc import Sequence
from typing import NoReturn

import click

from draftmark import __version__
from draftmark.cli.commands import check_outputs, init, plan, run
from draftmark.cli.explain import diagnose, memory
from draftmark.cli.results import compare_trees, recommend, report, status
from draftmark.errors import EXIT_INTERRUPTED, DraftmarkError


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="draftmark")
def cli() -> None:
    """Measure which speculative-decoding configuration to deploy.

    \b
    A first run, on any machine with two cores:
      draftmark run plans/quickstart.yaml

    \b
    Your own:
      draftmark init my.yaml        a commented plan for this machine
      draftmark plan my.yaml        what it will start and measure
      draftmark run my.yaml         measure; run it again to go on where it stopped
      draftmark report results/my   the report, again, from what is stored

    Exit codes: 0 all measured, 1 something failed, 2 bad input, 130 interrupted.
    """


for command in (init, plan, run, status, report, recommend, compare_trees, check_outputs, memory, diagnose):
    cli.add_command(command)


def _terminated(*_: object) -> NoReturn:
    raise KeyboardInterrupt


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run the command line and exit with its code."""
    signal.signal(signal.SIGTERM, _terminated)
    signal.signal(signal.SIGHUP, _terminated)
    try:
        cli.main(args=arguments, prog_name="draftmark", standalone_mode=False)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except DraftmarkError as error:
        click.echo(f"draftmark: {error}", err=True)
        sys.exit(error.exit_code)
    except (KeyboardInterrupt, click.Abort):
        click.echo("draftmark: interrupted", err=True)
        sys.exit(EXIT_INTERRUPTED)
    except BrokenPipeError:
        sys.stderr.close()
        sys.exit(EXIT_INTERRUPTED)
    sys.exit(0)
