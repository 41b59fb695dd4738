"""Webhooks: what is told, to whom, how often, and to whom never."""
