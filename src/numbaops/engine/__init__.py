"""The mechanism behind :class:`numbaops.reference.ReferenceEvaluator`: protos in, a list of steps out, and the loop over them."""
