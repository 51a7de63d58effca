"""Programs for those who work on Ottla: they write what is generated, and fetch what tests need."""
