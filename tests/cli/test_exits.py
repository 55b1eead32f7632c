"""How commands end that cannot say what they have to say."""

import errno
import io
import os
import sys

import pytest
from gin.utils import augment_exception_message_and_reraise

from rembed_keras.cli import main, rembed
from rembed_keras.cli.exits import reported_in_one_line


@pytest.mark.parametrize("encoding", ["ascii", "iso-8859-1", "cp1252", "euc-jp"])  # errors call them otherwise
def test_output_that_an_encoding_has_no_character_for_is_one_line(encoding, monkeypatch, capsys):
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(io.BytesIO(), encoding=encoding))
    with pytest.raises(SystemExit) as ended, reported_in_one_line():
        print("ไทย 58.3")
    assert ended.value.code == 2
    said = f"rembed: output in {encoding} cannot have '\\u0e44': set PYTHONIOENCODING=utf-8\n"
    assert capsys.readouterr().err == said


def test_so_is_that_of_a_stage_of_a_run(monkeypatch, capsys):
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(io.BytesIO(), encoding="ascii"))

    def called(function, *arguments):  # as gin calls what it configures
        try:
            function(*arguments)
        except UnicodeEncodeError as error:
            augment_exception_message_and_reraise(error, " in call")

    with pytest.raises(SystemExit) as ended, reported_in_one_line():
        called(called, print, "1/3 · loss")
    assert ended.value.code == 2
    assert capsys.readouterr().err == "rembed: output in ascii cannot have '\\xb7': set PYTHONIOENCODING=utf-8\n"


def test_what_is_encoded_elsewhere_is_a_bug_with_a_traceback():
    with pytest.raises(UnicodeEncodeError), reported_in_one_line():
        "±".encode("ascii")


def test_the_command_alone_shows_its_help_as_it_is(capsys):
    with pytest.raises(SystemExit) as ended, reported_in_one_line():
        rembed.main([], prog_name="rembed", standalone_mode=False)
    said = capsys.readouterr().err.splitlines()
    assert ended.value.code == 2 and said[0] == "Usage: rembed [OPTIONS] COMMAND [ARGS]..." and len(said) > 20


def test_output_that_nobody_reads_any_more_ends_a_command_without_a_word(monkeypatch, capsys):
    reader, writer = os.pipe()
    os.close(reader)
    monkeypatch.setattr(sys, "stdout", os.fdopen(writer, "w"))
    with pytest.raises(SystemExit) as ended, reported_in_one_line():
        print("a line", flush=True)
    sys.stdout.close()  # as Python's own end flushes what is left
    assert ended.value.code == 1 and not capsys.readouterr().err


def test_another_pipe_that_breaks_is_said(monkeypatch, capsys):
    reader, writer = os.pipe()
    with open(reader), open(writer, "w") as output:
        monkeypatch.setattr(sys, "stdout", output)
        with pytest.raises(SystemExit) as ended, reported_in_one_line():
            raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))
    assert ended.value.code == 2 and capsys.readouterr().err == "rembed: a file: Broken pipe\n"


def test_output_that_does_not_fit_is_named(monkeypatch, capsys):
    monkeypatch.setattr(sys, "stdout", open("/dev/full", "w"))  # noqa: SIM115 - closed below
    with pytest.raises(SystemExit) as ended, reported_in_one_line():
        print("a line", flush=True)
    sys.stdout.close()  # as Python's own end flushes what is left
    assert ended.value.code == 2
    assert capsys.readouterr().err == f"rembed: standard output: {os.strerror(errno.ENOSPC)}\n"


@pytest.mark.parametrize("size", [1, 1170])  # what is larger than the buffer of bytes is lost by the first attempt
def test_output_that_does_not_fit_at_the_end_of_a_command_is_named(size, monkeypatch, capsys):
    monkeypatch.setattr(sys, "stdout", open("/dev/full", "w"))  # noqa: SIM115 - closed below
    with pytest.raises(SystemExit) as ended, reported_in_one_line():
        sys.stdout.writelines(["a line\n" * size])
    sys.stdout.close()
    assert ended.value.code == 2
    assert capsys.readouterr().err == f"rembed: standard output: {os.strerror(errno.ENOSPC)}\n"


def test_a_command_whose_output_is_closed_goes_on(monkeypatch):
    monkeypatch.setattr(sys, "argv", ["rembed", "--version"])
    monkeypatch.setattr(sys, "stdin", None)
    monkeypatch.setattr(sys, "stdout", None)
    monkeypatch.setattr(sys, "stderr", None)
    main()
    assert not sys.stdout.isatty() and not sys.stderr.isatty() and sys.stdin.read() == ""
    for stream in (sys.stdin, sys.stdout, sys.stderr):
        stream.close()


def test_a_pipe_that_breaks_is_said_where_the_output_is_kept_in_memory(monkeypatch, capsys):
    monkeypatch.setattr(sys, "stdout", io.StringIO())
    with pytest.raises(SystemExit) as ended, reported_in_one_line():
        raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))
    assert ended.value.code == 2 and capsys.readouterr().err == "rembed: a file: Broken pipe\n"
