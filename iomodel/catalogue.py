"""Finds and checks the profiles in configs/gpus and in a user's own files."""

from __future__ import annotations

import fnmatch
import os
import re
from functools import lru_cache
from pathlib import Path
from typing import Any

from iomodel.errors import InputError, unknown
from iomodel.profile import REQUIRED, SCHEMA, SUSTAINED, Profile, Value, dimension
from iomodel.units import parse_quantity
from iomodel.yamlfile import Document, read_text, read_yaml

SECTIONS = ["memory", "compute", "sm", "launch", "board", "sustained"]
TOP_KEYS = ["name", "aliases", "vendor", "title", "architecture", "notes", "measured", *SECTIONS]
FAMILY_KEYS = ["name", "like", "notes", *SECTIONS]
#: Keys that may stand in a section for all of its values.
SHARED_KEYS = ["source", "fitted_on"]
#: The source of a bare value under `sm:` or `launch:`.
BARE = "as given in the profile"
VALUE_KEYS = ["value", "source", "note", "called", "fitted_on"]

_HEAD = re.compile(r"^(name|aliases|architecture):\s*(.*?)\s*(?:#.*)?$", re.MULTILINE)


def configs_folder(kind: str) -> Path:
    """The shipped folder `configs/<kind>`: inside the installed package, or beside it in a checkout."""
    package = Path(__file__).parent
    for folder in (package / "configs", package.parent / "configs"):
        if folder.is_dir():
            return folder / kind
    raise InputError("the configs folder is missing from this installation; reinstall iomodel")


def user_folders() -> list[Path]:
    """A user's own profiles: the folders in IOMODEL_CONFIGS, then the platform's config folder."""
    # os.path.expanduser leaves an unknown ~user as it is, where Path.expanduser raises.
    listed = [Path(os.path.expanduser(p)) for p in os.environ.get("IOMODEL_CONFIGS", "").split(os.pathsep) if p]
    base = os.environ.get("XDG_CONFIG_HOME") or os.environ.get("APPDATA") or "~/.config"
    return [*listed, Path(os.path.expanduser(base)) / "iomodel" / "gpus"]


def profile_files() -> dict[str, Path]:
    """Every known profile, name (the file's stem) -> file; a user's file wins over a shipped one."""
    found: dict[str, Path] = {}
    for folder in [*user_folders(), configs_folder("gpus")]:
        if folder.is_dir():
            for file in sorted(folder.glob("*.y*ml")):
                found.setdefault(file.stem, file)
    return dict(sorted(found.items()))


def aliases() -> dict[str, str]:
    """alias -> profile name, read from the head of each file without parsing it whole.

    Aliases of a shipped profile also lead to a user's file of the same name.
    """
    found: dict[str, str] = {}
    files = profile_files()
    shadowed = [(f.stem, f) for f in sorted(configs_folder("gpus").glob("*.yaml")) if files[f.stem] != f]
    for name, file in [*files.items(), *shadowed]:
        heads = dict(_HEAD.findall(read_text(file)))
        for alias in re.findall(r"[^\s,\[\]]+", heads.get("aliases", "")):
            found.setdefault(alias.strip("'\""), name)
    return found


def find_profiles(text: str) -> list[Profile]:
    """The profiles that `--gpu` names: names, aliases, patterns (`h*`) and paths, joined by commas."""
    found: dict[str, Profile] = {}
    for part in [p.strip() for p in text.split(",")]:
        if not part:
            raise InputError(f"GPU {text!r}: an empty name; write names joined by commas")
        if any(c in part for c in "*?[") and not is_path(part):
            names = [name for name in profile_files() if fnmatch.fnmatch(name.lower(), part.lower())]
            if not names:
                raise unknown("GPU", part, profile_files())
        else:
            names = [part]
        for name in names:
            profile = load_profile(name)
            if found.setdefault(profile.name, profile) != profile:
                raise InputError(
                    f"GPU {text!r}: two different profiles are named {profile.name}; "
                    f"change the name: line in {name}"
                )
    return list(found.values())


def is_path(text: str) -> bool:
    """Whether a GPU is named by the path of a file, not by a name of the catalogue."""
    return "/" in text or "\\" in text or text.lower().endswith((".yaml", ".yml", ".json"))


def load_profile(name: str | Path) -> Profile:
    """A profile by catalogue name, alias, or path of a YAML file.

    >>> load_profile("h100").name
    'h100-sxm'
    """
    text = str(name)
    if is_path(text):
        return _read_profile(text, _stamp(text))
    if re.fullmatch(r"[\w.-]+", text):
        for folder in [*user_folders(), configs_folder("gpus")]:
            for file in (folder / f"{text}.yaml", folder / f"{text}.yml"):
                if file.is_file():  # no need to list the folders
                    return _read_profile(str(file), _stamp(file))
    files = profile_files()
    if text not in files:
        text = aliases().get(text.lower(), text.lower())
    if text not in files:
        raise unknown("GPU", name, [*files, *aliases()])
    return _read_profile(str(files[text]), _stamp(files[text]))


def _stamp(path: str | Path) -> tuple[int, int]:
    """What changes when a file is written: a profile edited while Python runs is read again."""
    try:
        status = os.stat(path)
    except (OSError, ValueError):
        return (0, 0)  # reading it says what is wrong
    return (status.st_mtime_ns, status.st_size)


@lru_cache(maxsize=256)
def _read_profile(path: str, stamp: tuple[int, int]) -> Profile:
    document = read_yaml(path)
    data = document.data
    document.check_keys((), data, TOP_KEYS, "profile key")
    name = data.get("name")
    if not isinstance(name, str) or not name:
        raise InputError(f"{path}: a profile needs a name")
    own = read_values(document, data)
    for key in REQUIRED:
        if key not in own:
            raise InputError(f"{path}: {name} has no {key}, and without it there is no roofline")
    architecture = str(data.get("architecture") or _shipped_architecture(name))
    families = _families(architecture, document)
    values: dict[str, Value] = {}
    assumed: dict[str, str] = {}
    for family, inherited in reversed(families):
        for key, value in inherited.items():
            values[key] = value
            if name in value.fitted_on:
                assumed.pop(key, None)
            else:
                assumed[key] = family
    for key, value in own.items():
        values[key] = value
        assumed.pop(key, None)
    return Profile(
        name=name,
        values=values,
        vendor=str(data.get("vendor", "")),
        architecture=architecture,
        title=str(data.get("title", name)),
        aliases=tuple(str(a) for a in data.get("aliases") or ()),
        notes=tuple(str(n) for n in data.get("notes") or ()),
        assumed=assumed,
    )


def _shipped_architecture(name: str) -> str:
    """The family of the shipped profile of this name, for a user's own file that does not say; else `generic`."""
    shipped = configs_folder("gpus") / f"{name}.yaml"
    if re.fullmatch(r"[\w.-]+", name) and shipped.is_file():
        heads: dict[str, str] = dict(_HEAD.findall(read_text(shipped)))
        return heads.get("architecture", "generic")
    return "generic"


def _families(architecture: str, document: Document) -> list[tuple[str, dict[str, Value]]]:
    """The family's values and those of the families it is like, nearest first."""
    chain: list[tuple[str, dict[str, Value]]] = []
    name: Any = architecture
    folder = configs_folder("families")
    while name:
        if name in [family for family, _ in chain]:
            raise InputError(f"family {name} is like itself: {' -> '.join(f for f, _ in chain)}")
        file = folder / f"{name}.yaml"
        if not re.fullmatch(r"[\w.-]+", str(name)) or not file.is_file():
            known = [f.stem for f in folder.glob("*.yaml")]
            raise unknown("architecture", name, known, document.where("architecture"))
        values, like = _read_family(str(file), _stamp(file))
        chain.append((name, values))
        name = like
    return chain


@lru_cache(maxsize=256)
def _read_family(path: str, stamp: tuple[int, int]) -> tuple[dict[str, Value], Any]:
    """A family's values and which family it is like; many profiles share one."""
    family = read_yaml(path)
    family.check_keys((), family.data, FAMILY_KEYS, "family key")
    return read_values(family, family.data), family.data.get("like")


def read_values(document: Document, data: dict[str, Any]) -> dict[str, Value]:
    """The values of a profile or family: each with unit, source, and a known key."""
    values: dict[str, Value] = {}
    for section in SECTIONS:
        entries = data.get(section)
        if entries is None:
            continue
        known = [path.partition(".")[2] for path in SCHEMA if path.startswith(section + ".")]
        if section == "sustained":
            known = list(SUSTAINED)
        document.check_keys((section,), entries, [*SHARED_KEYS, *known], f"key in {section}:")
        shared = {key: entries[key] for key in SHARED_KEYS if key in entries}
        for key, entry in entries.items():
            if key not in SHARED_KEYS:
                path = f"{section}.{key}"
                values[path] = _value(document, (section, key), path, entry, shared)
    return values


def _value(document: Document, keys: tuple[str, str], path: str, entry: Any, shared: dict[str, Any]) -> Value:
    where = document.where(*keys)
    if not isinstance(entry, dict):
        # What a machine or its driver says of itself may stand bare; a rate or a capacity may not.
        entry = {"value": entry, "source": BARE} if keys[0] in ("sm", "launch") else {"value": entry}
        if "source" in shared:
            entry.pop("source", None)
    document.check_keys(keys, entry, VALUE_KEYS)
    if "value" not in entry:
        raise InputError(f"{where}: {path} has no value")
    source = entry.get("source") or shared.get("source")
    if not source or not str(source).strip():
        raise InputError(f"{where}: {path} has no source; write {{value: ..., source: ...}}")
    try:
        amount = parse_quantity(entry["value"], dimension(path))
    except InputError as error:
        raise InputError(f"{where}: {path}: {error}") from None
    if amount <= 0 and dimension(path) != "s" and not path.startswith("sustained."):
        raise InputError(f"{where}: {path} must be above zero")
    fitted_on = entry.get("fitted_on") or shared.get("fitted_on") or ()
    return Value(
        amount,
        dimension(path),
        str(source),
        str(entry.get("note", "")),
        str(entry.get("called", "")),
        tuple(str(gpu) for gpu in fitted_on),
    )
