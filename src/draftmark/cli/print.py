"""Output that can be piped: lines, or one JSON value."""

from collections.abc import Iterable

import click
import msgspec

JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON for other programs.")


def print_lines(lines: Iterable[str]) -> None:
    """To standard output."""
    for line in lines:
        click.echo(line)


def print_json(value: object) -> None:
    """To standard output, indented."""
    click.echo(msgspec.json.format(msgspec.json.encode(value), indent=2))
