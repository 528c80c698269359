"""E-mail addresses, phone and card numbers in a text, replaced by what they are."""

import re
from collections.abc import Iterable

_EMAIL = re.compile(r"\b[A-Za-z0-9._%+-]+@[A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)*\.[A-Za-z]{2,}\b")
_CARD = re.compile(r"(?<![\d.])\d(?:[ -]?\d){12,18}(?![\d.]?\d)")
_PHONE = re.compile(
    r"(?<![\w.+-])(?:\+\d{1,3}[ .-]?(?:\(\d{1,4}\)[ .-]?)?\d{1,4}(?:[ .-]?\d{2,4}){1,4}"
    r"|\(\d{2,4}\)[ .-]?\d{3,4}[ .-]?\d{3,4}|\d{3}[ .-]\d{3}[ .-]\d{4})(?![\w-]|\.\d)"
)


def mask_private(text: str, kinds: Iterable[str]) -> tuple[str, dict[str, int]]:
    """The text with what is private replaced, and how often each kind was. Cards come before phones, whose digits they
    resemble."""
    counts: dict[str, int] = {}
    for kind in ("email", "card", "phone"):
        if kind in kinds:
            text, counts[kind] = _REPLACE[kind](text)
    return text, counts


def _cards(text: str) -> tuple[str, int]:
    found = 0

    def replaced(match: re.Match) -> str:
        nonlocal found
        valid = _passes_luhn(match[0])
        found += valid
        return "[CARD]" if valid else match[0]

    return _CARD.sub(replaced, text), found


def _passes_luhn(number: str) -> bool:
    """Whether the last digit is the check digit that card numbers have."""
    digits = [int(digit) for digit in number if digit.isdigit()][::-1]
    doubled = (2 * digit - 9 * (digit > 4) for digit in digits[1::2])
    return (sum(digits[::2]) + sum(doubled)) % 10 == 0 and len(set(digits)) > 1


_REPLACE = {
    "email": lambda text: _EMAIL.subn("[EMAIL]", text),
    "card": _cards,
    "phone": lambda text: _PHONE.subn("[PHONE]", text),
}
