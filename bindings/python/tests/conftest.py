import os
import subprocess

import pytest


@pytest.fixture
def weir_program():
    """Runs the program `weir` and returns its output."""

    def run(*arguments):
        command = [os.environ["WEIR_BIN"], *arguments]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout

    return run
