"""Real servers without containers, and wire proxies before them."""
