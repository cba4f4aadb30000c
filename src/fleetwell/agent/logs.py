"""The agent's log: one line an event on stderr, for people or for programs."""

from __future__ import annotations

import logging
import sys

import structlog


def log_to_stderr(form: str) -> None:
    """Set it up for this process.

    :param form: ``text`` or ``json``.
    """
    renderer: structlog.typing.Processor = (
        structlog.processors.JSONRenderer() if form == "json" else structlog.processors.LogfmtRenderer()
    )
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=True,
    )
