"""Sessions in Django: see `tests/roles/web_behaviour.py` for what all frameworks share, and how."""

from http import HTTPStatus

import pytest

pytest.importorskip("django", reason="there is no Django: pip install django")

from tests.roles.web_behaviour import Behaviour, local
from tests.web import NO_SETPRIV

__all__ = ["local"]

pytestmark = [pytest.mark.slow, pytest.mark.skipif(bool(NO_SETPRIV), reason=NO_SETPRIV)]


class TestDjango(Behaviour):
    kind = "django"
    is_interrupted_by = HTTPStatus.BAD_REQUEST  # J2
