"""What every part of the broker needs of the core, and nothing more: it knows none of them."""
