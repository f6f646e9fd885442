"""Facts of models, from their files."""
