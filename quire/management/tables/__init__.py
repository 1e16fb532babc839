"""The lists of operators: which columns sort them, which words choose among their entries."""
