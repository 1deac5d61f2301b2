"""The dependencies of albertkit, from the metadata of installed distributions."""

import importlib.metadata
import tomllib

from packaging.requirements import Requirement
from places import ROOT


def required(extra: str | None = None) -> set[str]:
    """Return the names of all distributions that albertkit, or albertkit with an extra, needs."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    listed = project["dependencies"] + (project["optional-dependencies"][extra] if extra else [])
    names, waiting = set(), [Requirement(line) for line in listed]
    while waiting:
        requirement = waiting.pop()
        name = requirement.name.casefold().replace("_", "-")
        environments = [{"extra": name_of_extra} for name_of_extra in ("", *requirement.extras)]
        if name not in names:
            names.add(name)
            for needed in map(Requirement, importlib.metadata.requires(name) or ()):
                if needed.marker is None or any(map(needed.marker.evaluate, environments)):
                    waiting.append(needed)
    return names
