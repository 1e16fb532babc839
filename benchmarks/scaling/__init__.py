"""How far brokers and clusters scale: costs that are measured, and a model that extrapolates them."""
