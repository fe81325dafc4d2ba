"""Scoped key-value storage: locations, domains, scopes, locks and atomic updates over any backend."""
