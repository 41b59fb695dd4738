"""What is stored about a job: one function, one transaction. The only importer of psycopg."""
