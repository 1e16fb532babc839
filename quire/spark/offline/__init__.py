"""Planning reads of a store: which partitions, which ranges of them, in which tasks."""
