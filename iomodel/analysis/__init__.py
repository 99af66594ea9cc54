"""The questions that iomodel answers: one file each, a function from sizes to an Analysis."""
