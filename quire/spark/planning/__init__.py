"""Planning reads of a store or a broker: which partitions, which ranges of them, in which tasks."""
