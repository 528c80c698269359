"""What a message must name, without its wording."""


def tells(message: str, parts: str) -> bool:
    """Whether a message names these parts in this order: "train.stps … train.steps"."""
    start = 0
    for part in parts.split(" … "):
        found = message.find(part, start)
        if found < 0:
            return False
        start = found + len(part)
    return True
