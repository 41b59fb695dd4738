-- Listen for "these jobs have said more": the payload lists their ids. Apart from the changes, because most who wait for
-- a job want none of its output.
LISTEN aijobs_output;
