"""The one exception that is the user's to mend.

A recipe with a misspelt knob, a file that is not there, text that is not UTF-8: these are not bugs, and a traceback
would only hide what to do about them. Whoever finds such a mistake raises `UserError` with one line that names the
file or the knob and the remedy; the command line prints that line and exits with 2.
"""


class UserError(Exception):
    """A mistake of the user's, told in one line that names what to change.

    >>> raise UserError("corpus/xx.txt is empty: remove it or add text")
    Traceback (most recent call last):
    rembed_keras.errors.UserError: corpus/xx.txt is empty: remove it or add text
    """
