"""The programs of the README and of docs/integrations.md, run with the package as it is installed from a wheel."""

from __future__ import annotations

import importlib.util
import os
import pathlib
import re
import subprocess
import sys
import unittest

from .server import TOKEN, Server, Temporary

HERE = pathlib.Path(__file__).resolve().parents[1]


class Readme(unittest.TestCase):
    def test_programs_run_from_a_wheel(self) -> None:
        if not all(importlib.util.find_spec(name) for name in ("pip", "setuptools", "wheel")):
            self.skipTest("SKIPPED: the wheel of the Python client: pip, setuptools and wheel are not all installed")
        directory = Temporary()
        self.addCleanup(directory.remove)
        source, built, empty = (pathlib.Path(directory.path, name) for name in ("source", "built", "empty"))
        for d in (source, built, empty):
            d.mkdir()
        for name in ("pyproject.toml", "README.md"):
            (source / name).write_bytes((HERE / name).read_bytes())
        (source / "hansard").mkdir()
        for f in (HERE / "hansard").iterdir():
            if f.is_file():
                (source / "hansard" / f.name).write_bytes(f.read_bytes())
        build = f"import setuptools.build_meta as b; b.build_wheel({str(built)!r})"
        made = subprocess.run([sys.executable, "-c", build], cwd=source, capture_output=True, text=True)
        self.assertEqual(made.returncode, 0, made.stderr)
        (wheel,) = built.glob("*.whl")
        pip_install = [sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--disable-pip-version-check", "--root-user-action=ignore"]
        installed = subprocess.run([*pip_install, "--target", str(empty), str(wheel)], capture_output=True, text=True)
        self.assertEqual(installed.returncode, 0, installed.stderr)
        self.assertTrue((empty / "hansard" / "py.typed").exists())
        server = Server(directory.path)
        self.addCleanup(server.kill)
        pages = (HERE / "README.md").read_text() + (HERE.parents[1] / "docs" / "integrations.md").read_text()
        programs = re.findall(r"```python\n(.*?)```", pages, re.S)
        self.assertEqual(len(programs), 3)
        said = []
        for program in programs:
            ran = subprocess.run(
                [sys.executable, "-W", "error", "-c", program], cwd=empty, capture_output=True, text=True,
                env={**os.environ, "HANSARD_STORE": server.url, "HANSARD_TOKEN": TOKEN, "PYTHONPATH": str(empty)},
            )  # fmt: skip
            self.assertEqual((ran.returncode, ran.stderr), (0, ""), program)
            said.append(ran.stdout)
        self.assertIn("agent Lima.", said[0])
        self.assertIn("'uuid': 'u1'", said[1])
        self.assertIn("'content': 'Hello'", said[2])


if __name__ == "__main__":
    unittest.main()
