"""aiohttp, imported without the machine's certificate authorities and without what only proxies need.

At import aiohttp makes two TLS contexts for those who bring none, and reads every authority that the machine trusts
into each: 2 MiB and 15 ms for nothing, since every connection of ours has a context of its own. While it is imported
OpenSSL is told that there are none.

It also imports ``urllib.request``, and with it ``http.client``, ``tempfile``, ``shutil`` and three compressors, for the
proxies that the environment names: 1 MiB more, and we ask for none. What it takes from there is imported when called.

Where somebody has imported them before us, nothing is changed.
"""

from __future__ import annotations

import importlib
import os
import sys
import types
from typing import Any

_VARIABLE = "SSL_CERT_FILE"
_PROXIES = "urllib.request"


class _Later(types.ModuleType):
    """A module whose functions import the real one when they are called."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)

        def call(*given: Any) -> Any:
            return getattr(importlib.import_module(self.__name__), name)(*given)

        return call


_before = os.environ.get(_VARIABLE)
os.environ[_VARIABLE] = os.devnull
_later = sys.modules.setdefault(_PROXIES, _Later(_PROXIES))
try:
    import aiohttp
finally:
    if isinstance(_later, _Later):
        del sys.modules[_PROXIES]
    if _before is None:
        del os.environ[_VARIABLE]
    else:
        os.environ[_VARIABLE] = _before

__all__ = ["aiohttp"]
