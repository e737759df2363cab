"""Studies of what networks over algebras learn; they use the public interface of the zoo."""
