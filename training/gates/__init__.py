"""Whether a version may ship: one paired run over a log, one list of rules, one verdict."""
