"""Calls to providers over HTTP: each returns a Reply or raises one ProviderError."""
