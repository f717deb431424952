"""Models made into other models that give the same: folded, or compacted."""
