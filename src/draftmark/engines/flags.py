"""Flags of a server: which settings win, and which contradict each other."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from draftmark.errors import BadInput, nearest
from draftmark.schema import Scalar, Service

UNCHECKED = "!"
"""Before a name in ``args``: pass the flag on although no known version of the engine has it (forks)."""


@dataclass(frozen=True)
class Setting:
    """A flag's value, and the key of the plan that it comes from."""

    value: Scalar | None
    key: str = ""
    """Empty for a default of draftmark's own, which ``args`` may replace."""


@dataclass(frozen=True)
class Known:
    """The flags of one version of an engine, without the leading dashes."""

    engine: str
    names: frozenset[str]
    renamed: Mapping[str, str] = field(default_factory=dict)
    """Aliases and earlier names, and the name that is used here."""


def known_flags(
    engine: str,
    names: Mapping[str, frozenset[str]],
    service: Service,
    renamed: Mapping[str, str] | None = None,
) -> Known:
    """Flags of the service's engine version.

    Without one it is the newest known, and one that is not listed may use the flags of any that is.
    """
    version = service.engine.version or list(names)[-1]
    every = frozenset().union(*names.values())
    return Known(f"{engine} {version}", names.get(version, every), renamed or {})


def resolve(ours: Mapping[str, Setting], service: Service, known: Known) -> dict[str, Scalar | None]:
    """One value for each flag; raises BadInput where ``args`` holds an unknown flag or contradicts a key."""
    flags = {name: setting.value for name, setting in ours.items()}
    for name, theirs in _raw(service, known).items():
        own = ours.get(name)
        if name == "port":
            raise BadInput(f"{theirs.key}: draftmark picks a free port for each start", "leave it out")
        if own and own.key and str(own.value) != str(theirs.value):
            raise BadInput(
                f"{theirs.key}: {_shown(theirs.value)} contradicts {own.key}: {_shown(own.value)}",
                f"both set --{name}; remove one of them",
            )
        flags[name] = theirs.value
    return flags


def argv(flags: Mapping[str, Scalar | None], known: Known) -> tuple[str, ...]:
    """Command-line words: true is the bare flag, false its ``--no-`` form or nothing, None nothing."""
    return tuple(word for name, value in flags.items() for word in _words(name, value, known.names))


def _words(name: str, value: Scalar | None, names: frozenset[str]) -> Iterable[str]:
    if value is None:
        return ()
    if isinstance(value, bool):
        negative = f"no-{name}"
        return (f"--{name}",) if value else (f"--{negative}",) if negative in names else ()
    return (f"--{name}", str(value))


def _raw(service: Service, known: Known) -> dict[str, Setting]:
    """The plan's own flags by the name used here; a method's win over the server's."""
    raw: dict[str, Setting] = {}
    for where, args in (
        ("server.args", service.args),
        (f"methods.{service.method.name}.args", service.method.args),
    ):
        for given, value in args.items():
            name, value = _named(given, value, f"{where}.{given}", known)
            raw[name] = Setting(value, f"{where}.{given}")
    return raw


def _named(given: str, value: Scalar | None, key: str, known: Known) -> tuple[str, Scalar | None]:
    """The flag's name as it is used here, and its value; ``no-x: true`` is ``x: false``."""
    if given.startswith(UNCHECKED):
        return given.removeprefix(UNCHECKED), value
    name = known.renamed.get(given, given)
    if name not in known.names:
        raise BadInput(f"{key}: {known.engine} has no flag '{given}'", _advice(given, known))
    positive = name.removeprefix("no-")
    if positive == name or positive not in known.names:
        return name, value
    if value is not None and not isinstance(value, bool):
        raise BadInput(f"{key}: expected true or false, got {value}", f"it switches '{positive}' off")
    return positive, None if value is None else not value


def _advice(given: str, known: Known) -> str:
    if given.startswith("-"):
        return f"flags are written without their dashes: {given.lstrip('-')}"
    guess = nearest(given, known.names)
    near = guess if guess.startswith("did you mean") else "the engine's --help lists them."
    return f"{near} A fork's own flag is passed on as '{UNCHECKED}{given}'"


def _shown(value: Scalar | None) -> str:
    return "null" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
