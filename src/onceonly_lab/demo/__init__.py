"""The demo: real flights, real SIGKILLs, every row compared with the input."""
