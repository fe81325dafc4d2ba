"""Language models: providers, one call, one usage report."""
