-- Listen for "these jobs have changed": the payload lists their ids, separated by commas.
LISTEN aijobs_events;
