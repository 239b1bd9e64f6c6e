"""The inference core: scheduler, cost, pool, pages, shards, engine; generic, behind a Model protocol."""
