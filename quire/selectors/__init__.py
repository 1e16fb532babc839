"""JMS message selectors: conditions over a message's headers (JMS 2.0, section 3.8)."""

from quire.selectors.message_selector import Selector, at_most, selector

__all__ = ["Selector", "at_most", "selector"]
