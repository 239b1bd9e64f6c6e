"""How long rows live after their last change, in seconds."""

from __future__ import annotations

USER_LIFE_S = 90 * 86400
SESSION_LIFE_S = 24 * 3600
RANKING_LIFE_S = 7 * 86400
ID_LIFE_S = 7 * 86400
