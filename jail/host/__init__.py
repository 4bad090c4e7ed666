"""Outside a jail: what builds, limits, kills and reaps it. Holds no secret, reads nothing from it."""
