"""A wheel with the shared library in it: built by cargo, or taken from FREEHOLD_LIBRARY."""

import os
import re
import shutil
import subprocess
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py
from setuptools.dist import Distribution

HERE = Path(__file__).resolve().parent
# Optimised throughout, which the workspace's `release` is not.
PROFILE = "measure"


def version():
    text = (HERE / "../../../Cargo.toml").resolve().read_text()
    section = text.split("[workspace.package]", 1)[1].split("\n[", 1)[0]
    return re.search(r'^version = "(.*)"', section, re.M).group(1)


def library():
    given = os.environ.get("FREEHOLD_LIBRARY")
    if given:
        return Path(given)
    target = Path(os.environ.get("CARGO_TARGET_DIR", HERE / "../../../target/c"))
    # As ../Makefile builds it, so that what is there already is taken as it is.
    command = ["cargo", "rustc", "--profile", PROFILE, "--package", "freehold-ffi", "--lib"]
    command += ["--crate-type", "cdylib,staticlib"]
    environment = {**os.environ, "CARGO_TARGET_DIR": str(target)}
    subprocess.run(command, cwd=HERE, check=True, env=environment)
    return target / PROFILE / "libfreehold_ffi.so"


class Build(build_py):
    def run(self):
        super().run()
        package = Path(self.build_lib) / "freehold"
        package.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(library(), package / "libfreehold.so")


class Platform(Distribution):
    """Says that the wheel is for this platform."""

    def has_ext_modules(self):
        return True


try:
    from setuptools.command.bdist_wheel import bdist_wheel
except ImportError:  # Before setuptools 70 it was the wheel package's.
    from wheel.bdist_wheel import bdist_wheel


class Wheel(bdist_wheel):
    """ctypes does not care which Python it is in."""

    def get_tag(self):
        return ("py3", "none", super().get_tag()[2])


setup(version=version(), cmdclass={"build_py": Build, "bdist_wheel": Wheel}, distclass=Platform)
