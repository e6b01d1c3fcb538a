"""The hands: one module or small package per destination, and the conformance suite that each must pass."""
