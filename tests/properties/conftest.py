"""Statistical tests have few images: worlds run beside each other (pytest -n), not images."""

import pytest

from pixelbounds.images import library


@pytest.fixture(autouse=True)
def one_thread(request, monkeypatch):
    if request.node.get_closest_marker("guarantees"):
        monkeypatch.setattr(library, "_THREADS", 1)
