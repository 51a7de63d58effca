"""Programs that are Spark's driver, in processes of their own, so that tests can kill them."""
