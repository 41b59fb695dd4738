"""The API for a WSGI server: `gunicorn -c gunicorn.conf.py wsgi:app`."""

from __future__ import annotations

import logging
import sys

from aijobs import logs, metrics
from aijobs.api import create_app
from aijobs.config import Settings
from aijobs.errors import ConfigError

# gunicorn stops for good at a worker that ends with this status; after any other it would start the next one, for ever.
_BOOT_FAILED = 3

try:
    settings = Settings.from_env()
    app = create_app(settings)
except ConfigError as error:
    for problem in error.problems:
        print(f"aijobs: {problem}", file=sys.stderr)
    sys.exit(_BOOT_FAILED)

logs.configure(settings.log_format)
metrics.configure(settings.statsd, settings.statsd_prefix)
for warning in settings.warnings:
    logging.getLogger("aijobs").warning("%s", warning)
