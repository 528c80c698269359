"""What optimum answers, in an environment of its own: a JSON file names folders, tasks and texts."""

import json
import sys

from optimum import onnxruntime
from transformers import AutoTokenizer, pipeline

CLASSES = {
    "token-classification": "ORTModelForTokenClassification",
    "text-classification": "ORTModelForSequenceClassification",
    "fill-mask": "ORTModelForMaskedLM",
}
FILES = {"fp32": "model.onnx", "q8": "model_quantized.onnx"}
answers = []
with open(sys.argv[1], encoding="utf-8") as questions:
    for asked in json.load(questions):
        model = getattr(onnxruntime, CLASSES[asked["task"]]).from_pretrained(
            asked["folder"], subfolder="onnx", file_name=FILES[asked["dtype"]]
        )
        tokenizer = AutoTokenizer.from_pretrained(asked["folder"])
        answer = pipeline(asked["task"], model=model, tokenizer=tokenizer)
        answers.append([answer(text, **asked["options"]) for text in asked["texts"]])
print(json.dumps(answers, default=float))
