"""What the user in front of the screen has: streams, waits, cancels; on real workers behind a real gunicorn."""
