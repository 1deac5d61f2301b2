"""What an installation of albertkit brings along, by the metadata of what is installed here."""

import importlib.metadata
import tomllib

from packaging.requirements import Requirement
from places import ROOT


def required(extra: str | None = None) -> set[str]:
    """Return the names of all distributions that albertkit needs, and one of its extras."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    listed = project["dependencies"] + (project["optional-dependencies"][extra] if extra else [])
    names, waiting = set(), [Requirement(one) for one in listed]
    while waiting:
        requirement = waiting.pop()
        name = requirement.name.casefold().replace("_", "-")
        wanted = [{"extra": one} for one in ("", *requirement.extras)]
        if name not in names:
            names.add(name)
            for one in map(Requirement, importlib.metadata.requires(name) or ()):
                if one.marker is None or any(map(one.marker.evaluate, wanted)):
                    waiting.append(one)
    return names
