"""The algebras that come with the zoo, through the same entry points as anybody else's."""
