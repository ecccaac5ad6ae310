"""A pytest plugin: a check that was not made is a failure. A test may be skipped, or expected to
fail, for a reason of :data:`ALLOWED` only; what was left out is listed at the end."""

from __future__ import annotations

import pytest

from support import tier

#: Reasons for which a test may be left out, each with where it is made instead. What is missing is
#: none: the commands that run the tests install everything.
ALLOWED = {tier.NIGHTLY: "cargo xtask nightly"}


def reason_of(report: pytest.TestReport) -> str:
    """Why a test was left out."""
    if isinstance(report.longrepr, tuple):
        return report.longrepr[2].removeprefix("Skipped: ")
    return getattr(report, "wasxfail", "")


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if reporter is None:  # a worker, whose reports go to the process that prints
        return
    left_out = [
        (report.nodeid, reason_of(report))
        for kind in ("skipped", "xfailed", "xpassed")
        for report in reporter.stats.get(kind, [])
    ]
    if left_out:
        reporter.section("Not made here")
    for name, reason in left_out:
        reporter.line(f"{name}: {reason}: {ALLOWED.get(reason, 'not an allowed reason')}")
    if any(reason not in ALLOWED for _, reason in left_out):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
