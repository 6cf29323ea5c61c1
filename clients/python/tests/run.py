"""Runs the tests and reports each as go test does, for scripts/gotest and scripts/summary."""

from __future__ import annotations

import faulthandler
import pathlib
import sys
import time
import unittest
from typing import Any

HERE = pathlib.Path(__file__).resolve().parents[1]
LEAST = 58  # tests that have to have run, so that a module that is not found is not taken for success


class Report(unittest.TestResult):
    ran = 0

    def startTest(self, test: Any) -> None:
        super().startTest(test)
        self.began, self.outcome, self.why = time.monotonic(), "PASS", ""

    outcome = why = ""

    def _not(self, outcome: str, why: str) -> None:
        self.outcome, self.why = outcome, self.why + why

    def addError(self, test: Any, err: Any) -> None:
        super().addError(test, err)
        self._not("FAIL", self.errors[-1][1])
        if not hasattr(self, "began"):  # of a class that could not be set up
            print(f"--- FAIL: python/{test}\n{self.errors[-1][1]}", flush=True)

    def addFailure(self, test: Any, err: Any) -> None:
        super().addFailure(test, err)
        self._not("FAIL", self.failures[-1][1])

    def addSubTest(self, test: Any, subtest: Any, err: Any) -> None:
        super().addSubTest(test, subtest, err)
        if err is not None:
            self._not("FAIL", (self.failures + self.errors)[-1][1])

    def addSkip(self, test: Any, reason: str) -> None:
        super().addSkip(test, reason)
        self._not("SKIP", reason + "\n")

    def stopTest(self, test: Any) -> None:
        super().stopTest(test)
        Report.ran += 1
        print(f"--- {self.outcome}: python/{test.id()} ({time.monotonic() - self.began:.2f}s)\n{self.why}", end="", flush=True)
        del self.began


def main() -> int:
    sys.path.insert(0, str(HERE))
    tests = unittest.defaultTestLoader.discover(str(HERE / "tests"), top_level_dir=str(HERE))
    result = Report()
    faulthandler.dump_traceback_later(300, exit=True)  # a test that hangs says where
    tests.run(result)
    enough = Report.ran >= LEAST
    if not enough:
        print(f"--- FAIL: python\nonly {Report.ran} tests ran")
    good = result.wasSuccessful() and enough
    print(("ok  " if good else "FAIL") + " clients/python", Report.ran, "tests")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
