"""Local transactions, and XA."""
