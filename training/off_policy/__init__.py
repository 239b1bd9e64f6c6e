"""What a policy would be worth, from a log that another policy wrote: estimates, intervals, and when to refuse."""
