"""The commands that README and docs show are run, and must print what is shown there.

A block marked `console` holds `$ command` lines, each followed by its output. `--update-docs` writes
the output of today into the files instead of comparing.
"""

import re
import shlex
from pathlib import Path

import pytest

from iomodel.cli.app import run

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def commands(block):
    """(command, shown output) pairs of one console block."""
    parts = re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]
    return [part.split("\n", 1) for part in parts]


def output(command, capsys, monkeypatch):
    """What a shown command prints at 80 columns, run from the root of the checkout."""
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.chdir(ROOT)
    words = shlex.split(command)
    assert words[0] == "iomodel", f"only iomodel commands are shown with output: {command}"
    capsys.readouterr()
    run(words[1:])
    printed = capsys.readouterr()
    return printed.out + printed.err


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_shown_output_is_what_the_command_prints(page, capsys, monkeypatch, request):
    text = page.read_text(encoding="utf-8")
    update = request.config.getoption("--update-docs")
    for block in BLOCK.findall(text):
        fresh = ""
        for command, shown in commands(block):
            printed = output(command, capsys, monkeypatch)
            fresh += f"$ {command}\n{printed.rstrip()}\n\n"
            if not update:
                assert shown.strip() == printed.strip(), f"{page.name}: {command}"
        if update:
            text = text.replace(block, fresh.rstrip() + "\n")
    if update:
        page.write_text(text, encoding="utf-8")


def test_pages_exist_that_others_link_to():
    for page in PAGES:
        for target in re.findall(r"\]\((?!https?:|#)([^)#]+)", page.read_text(encoding="utf-8")):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_the_quick_start_has_two_commands_that_ci_runs_too():
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    start = readme.split("## Quick start", 1)[1].split("\n## ", 1)[0]
    shown = [
        line for block in re.findall(r"```\n(.*?)```", start, re.DOTALL) for line in block.splitlines() if line
    ]
    assert len(shown) == 2
    assert "iomodel attention --seq 16384" in shown[0]
    assert shown[1] in (ROOT / ".ci" / "run").read_text(encoding="utf-8")
