"""Durable AI jobs on PostgreSQL: what is true about a job, and how it is stored and exposed."""

__version__ = "0.1.0"
