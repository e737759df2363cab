"""The one kind of error that is the user's to mend."""


class InputError(ValueError):
    """Say in one line what was wrong, where, and what to do instead.

    Raise it for anything a user can mend: a name, a size, a file. The command line prints the line and exits with 2; every
    other exception is a defect of the zoo or of a plugin.
    """
