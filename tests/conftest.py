"""What several test files share: hypothesis' settings and the command line in this process."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass

import pytest
from hypothesis import HealthCheck, settings

# `suite` draws the same examples every time, so that a failure is the change's and not the day's.
# HYPOTHESIS_PROFILE=explore draws new ones, many more: run it before a release.
_CALM = {"deadline": None, "database": None, "suppress_health_check": [HealthCheck.too_slow]}
settings.register_profile("suite", max_examples=60, derandomize=True, **_CALM)
settings.register_profile("explore", max_examples=2000, **_CALM)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "suite"))


@dataclass(frozen=True)
class Ran:
    """What a command line did."""

    code: int
    out: str
    err: str


@pytest.fixture
def iomodel_run(capsys: pytest.CaptureFixture[str]) -> Callable[..., Ran]:
    """Run `iomodel` with these arguments in this process."""
    from iomodel.cli.app import run

    def call(*arguments: object) -> Ran:
        capsys.readouterr()
        code = run([str(a) for a in arguments])
        seen = capsys.readouterr()
        return Ran(code, seen.out, seen.err)

    return call


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--update-docs`: see tests/test_docs.py."""
    parser.addoption("--update-docs", action="store_true", help="write shown output into README and docs")
