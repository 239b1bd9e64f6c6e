"""A log played again against a version, beside what was logged."""
