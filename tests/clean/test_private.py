"""Addresses and numbers of people are replaced, other numbers stay."""

import pytest

from data_pipelines.clean.private import mask_private

ALL = ("email", "phone", "card")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("write to anna.b+c@mail.example.org, please", "write to [EMAIL], please"),
        ("call +49 30 1234567 or (030) 123-4567", "call [PHONE] or [PHONE]"),
        ("call 555-123-4567.", "call [PHONE]."),
        ("card 4111 1111 1111 1111 is valid", "card [CARD] is valid"),
        ("4111-1111-1111-1112 fails the check", "4111-1111-1111-1112 fails the check"),
        ("on 2024-10-31 at 12:30, 1,234,567.89 of 3.14159", "on 2024-10-31 at 12:30, 1,234,567.89 of 3.14159"),
        ("version 10.0.19041.1 and 192.168.100.200", "version 10.0.19041.1 and 192.168.100.200"),
        ("user@host and @handle", "user@host and @handle"),
        ("0000 0000 0000 0000", "0000 0000 0000 0000"),
    ],
)
def test_what_is_private_is_replaced_by_its_kind(text, expected):
    assert mask_private(text, ALL)[0] == expected


def test_only_the_kinds_that_were_asked_for_are_replaced_and_counted():
    text = "a@example.org b@example.org +49 30 1234567"
    assert mask_private(text, ["email"]) == ("[EMAIL] [EMAIL] +49 30 1234567", {"email": 2})
    assert mask_private(text, []) == (text, {})
