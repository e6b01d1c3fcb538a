"""Real servers on this machine without containers, and the wire proxies before them."""
