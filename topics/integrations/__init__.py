"""What lets other frameworks run on topics: one package for each, loaded by that framework alone."""
