-- Listen for "a cancel was asked for": the payload lists ids of running jobs. What is to be done stands in their rows.
LISTEN aijobs_cancels;
