"""A run in the formats of others: tables, films, figures, and a data set to train on."""
