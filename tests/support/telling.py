"""What a message must name, without its wording, and what a bench tells."""


def tells(message: str, parts: str) -> bool:
    """Whether a message names these parts in this order: "train.stps … train.steps"."""
    start = 0
    for part in parts.split(" … "):
        found = message.find(part, start)
        if found < 0:
            return False
        start = found + len(part)
    return True


def rows_and_notes(told):
    """What a bench yields, apart."""
    found = list(told)
    return [one for one in found if not isinstance(one, str)], [one for one in found if isinstance(one, str)]
