"""Options of the test suite."""

from hypothesis import settings

# Shared runners are slow at times: the number of examples is bounded, not the time of one.
settings.register_profile("iomodel", deadline=None, max_examples=60, derandomize=True)
settings.load_profile("iomodel")


def pytest_addoption(parser):
    parser.addoption("--update-docs", action="store_true", help="write shown output into README and docs")
