"""Public helpers for testing against Quire, and for testing stores made by others."""
