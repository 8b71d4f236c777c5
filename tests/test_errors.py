from __future__ import annotations

import errno
import runpy
from pathlib import Path

import pytest

from besttake.errors import ComponentError, LibraryError, PlanError, blaming, one_line


def test_an_error_of_another_library_is_one_line_with_its_type() -> None:
    assert one_line(ValueError("first\n   second")) == "ValueError: first second"


def test_an_error_that_cannot_say_what_it_is_gives_its_type() -> None:
    class Speechless(BaseException):
        def __str__(self) -> str:
            raise SystemExit

    assert one_line(Speechless()) == "Speechless"


def test_an_error_is_one_harmless_line_whatever_it_names() -> None:
    assert str(LibraryError("set a\x1b[2J\nb cannot be read")) == r"set a\x1b[2J b cannot be read"


@pytest.mark.parametrize(
    ("does", "says"),
    [
        ("return missing", "NameError: .*'missing'"),
        ("raise OSError('image file is truncated')", "OSError: image file is truncated"),
        ("raise ConnectionRefusedError(111, 'Connection refused')", "Refused"),
    ],
)
def test_an_error_in_a_users_own_code_is_one_line_with_the_place(tmp_path: Path, does: str, says: str) -> None:
    file = tmp_path / "my_policy.py"
    file.write_text(f"def sample():\n    {does}\n")
    said = rf"^the policy x failed: .*{says}.* \(my_policy.py:2\)$"
    with pytest.raises(ComponentError, match=said), blaming("the policy x"):
        runpy.run_path(str(file))["sample"]()


@pytest.mark.parametrize("limit", [errno.ENOSPC, errno.EMFILE])
def test_a_limit_of_the_machine_is_not_blamed_on_others(limit: int) -> None:
    with pytest.raises(OSError, match=str(limit)), blaming("the policy x"):
        raise OSError(limit, "no more")


def test_errors_of_ours_are_not_blamed_on_others() -> None:
    with pytest.raises(PlanError, match="^seeds = 0$"), blaming("the policy x"):
        raise PlanError("seeds = 0")
