"""aiohttp, imported without the machine's certificate authorities.

At import aiohttp makes two TLS contexts for those who bring none, and reads every authority that the machine trusts
into each: 2 MiB and 15 ms for nothing, since every connection of ours has a context of its own. While it is imported
OpenSSL is told that there are none; where somebody has imported it before us, nothing is changed.
"""

from __future__ import annotations

import os

_VARIABLE = "SSL_CERT_FILE"

_before = os.environ.get(_VARIABLE)
os.environ[_VARIABLE] = os.devnull
try:
    import aiohttp
finally:
    if _before is None:
        del os.environ[_VARIABLE]
    else:
        os.environ[_VARIABLE] = _before

__all__ = ["aiohttp"]
