"""`compare --weights`: tensors are matched, read in pieces from both sides, and set against each other."""
