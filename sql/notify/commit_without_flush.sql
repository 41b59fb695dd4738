-- Let this connection's commits return before they are flushed: it sends only hints, and a lost one costs a poll.
SET synchronous_commit = off;
