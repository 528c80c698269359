"""Labeled Hugging Face datasets, in a folder or on the hub, to records."""

from collections.abc import Iterator
from pathlib import Path

from data_pipelines.labels.sentence import Record
from data_pipelines.text.hub import load_hub


def dataset_records(source: str, split: str) -> Iterator[Record]:
    """The rows of a dataset; numbers of labels become names."""
    import datasets

    folder = Path(source)
    if any((folder / name).is_file() for name in ("dataset_dict.json", "state.json")):
        rows = datasets.load_from_disk(str(folder))
        if isinstance(rows, datasets.DatasetDict):
            if split not in rows:
                raise ValueError(f"{source} has no part {split!r}; its parts are {', '.join(map(str, rows))}")
            rows = rows[split]
    else:
        rows = load_hub(source.removeprefix("hf:"), split)
    names = {}
    for key, feature in rows.features.items():
        feature = getattr(feature, "feature", feature)
        if isinstance(feature, datasets.ClassLabel):
            names[key] = feature.names
    for number, row in enumerate(rows, start=1):
        for key, labels in names.items():
            value = row[key]
            numbers = value if isinstance(value, list) else [value]
            for index in numbers:
                # Splits with secret labels often hold -1, which to Python is the last label.
                if index is None or not 0 <= index < len(labels):
                    raise ValueError(f"{source}:{number}: {key} holds {index}, but labels are 0 to {len(labels) - 1}")
            row[key] = [labels[index] for index in numbers] if isinstance(value, list) else labels[value]
        yield row, number
