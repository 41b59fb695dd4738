"""Who is doing what right now: the processes that run jobs. Imports aijobs; no web process imports it."""
