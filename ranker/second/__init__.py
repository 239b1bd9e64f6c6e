"""The second stage: a transformer over the user's events that ranks what the light stage passed on."""
