"""Data as text that a page can hold by the megabyte and need not read before someone asks for it."""

import json
from base64 import b64encode
from typing import Any
from zlib import compress


def packed(data: Any) -> str:
    """JSON, deflated, in base64; the page's ``unpack`` reads it."""
    text = json.dumps(data, separators=(",", ":"), allow_nan=False)
    return b64encode(compress(text.encode("ascii"), 6)).decode("ascii")
