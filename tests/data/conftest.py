"""Fixtures of the data tests."""

from __future__ import annotations

from pathlib import Path

import pytest
from image_folders import write_image_folder


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder of 20 colour images of 6 x 4 with labels.csv: file, number, sex, patient."""
    write_image_folder(tmp_path)
    return tmp_path
