-- Listen for "there may be work": the payload is a queue's name and nothing else, because the message is only a hint.
LISTEN aijobs_jobs;
