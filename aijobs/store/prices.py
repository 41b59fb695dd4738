"""What providers ask, from which moment on."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from aijobs.domain.price_tables import ListedPrice
from aijobs.store.db import Database, fetch_all


def set_prices(db: Database, prices: Sequence[ListedPrice]) -> set[tuple[str, str]]:
    """Set prices, all or none; those (provider, model) that were left because calls have used them already.

    Source: sql/prices/set.sql.
    """
    if not prices:
        return set()
    with db.connection() as connection:
        rows = fetch_all(connection, "prices/set", {"prices": json.dumps([asdict(price) for price in prices])})
    return {(price.provider, price.model) for price in prices} - {(row["provider"], row["model"]) for row in rows}


def list_prices(db: Database, provider: str | None = None) -> list[dict[str, Any]]:
    """All prices, of one provider if named. Source: sql/prices/list.sql."""
    with db.connection() as connection:
        return fetch_all(connection, "prices/list", {"provider": provider})
