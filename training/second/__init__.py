"""Training of the second stage: examples from the log's replay, the fit, and the export into the registry."""
