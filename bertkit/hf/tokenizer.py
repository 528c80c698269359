"""A folder's tokenizer enters as it stands and leaves unchanged, for models whose tokenizer is not ours."""

import json
from pathlib import Path
from typing import Any, NamedTuple

from tokenizers import Tokenizer as Backend


class Special(NamedTuple):
    pad_id: int | None
    unk_id: int | None
    cls_id: int | None
    sep_id: int | None
    mask_id: int | None


class Tokenizer:
    def __init__(self, backend: Backend, special: Special, settings: dict[str, Any]):
        self.backend, self.special, self.settings = backend, special, settings

    def save(self, folder: Path) -> None:
        self.backend.save(str(folder / "tokenizer.json"))
        names = ("pad_token", "unk_token", "cls_token", "sep_token", "mask_token")
        kept = {name: _content(self.settings[name]) for name in names if self.settings.get(name)}
        settings = {"tokenizer_class": "PreTrainedTokenizerFast", **kept}
        if self.settings.get("model_max_length"):
            settings["model_max_length"] = self.settings["model_max_length"]
        (folder / "tokenizer_config.json").write_text(json.dumps(settings, indent=2, ensure_ascii=False) + "\n")


def load_tokenizer(folder: Path) -> Tokenizer:
    path = folder / "tokenizer.json"
    if not path.is_file():
        raise ValueError(f"{path} is missing; save the tokenizer with it")
    backend = Backend.from_file(str(path))
    backend.no_padding()
    backend.no_truncation()
    settings: dict[str, Any] = {}
    for name in ("special_tokens_map.json", "tokenizer_config.json"):
        if (folder / name).is_file():
            settings |= json.loads((folder / name).read_text(encoding="utf-8"))
    ids = [
        backend.token_to_id(_content(settings.get(f"{kind}_token")) or f"[{kind.upper()}]")
        for kind in ("pad", "unk", "cls", "sep", "mask")
    ]
    return Tokenizer(backend, Special(*ids), settings)


def _content(token: Any) -> Any:
    return token.get("content") if isinstance(token, dict) else token
