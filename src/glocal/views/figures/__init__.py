"""Story -> plain data for a page or a terminal; nothing is computed after this."""
