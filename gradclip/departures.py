from __future__ import annotations
DEPARTURES: tuple = ()
