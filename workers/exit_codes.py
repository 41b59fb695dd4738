"""What the exit status of the supervisor and of its children says."""

from __future__ import annotations

BAD_CONFIGURATION = 2
BOOT_FAILED = 3
SCHEMA_MISMATCH = 4
