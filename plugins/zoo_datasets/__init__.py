"""Published and generated data sets of the zoo, registered like those of any other package."""
