"""Records how Python's csv module, pandas and datasets read tables, for tests/data/tables: writes
tables.json.

    python record_tables.py

"csv" has texts and their rows according to the csv module in strict mode. "types" has texts with
the types and values that pandas infers with nullable dtypes. "splits" has the sizes of
train_test_split, and with "counts" the sizes of each class. "classes" has the names and ids of
class_encode_column.
"""

import csv
import io
import json
import pathlib

import datasets
import pandas
from sklearn.model_selection import train_test_split

FOLDER = pathlib.Path(__file__).parent

TEXTS = [
    'a,b\n1,2\n',
    'a,b\r\n1,2\r\n3,4',
    'a,b\n"x,y","z"\n',
    'a,b\n"say ""hi""",""\n',
    'a,b\n"two\nlines","cr\r\nlf"\n',
    'a,b\n in front, behind \n',
    'a,b\nx"y,""""\n',
    'a,b\n,\n"",""""\n',
    'a\n"x"\n\n"y"\n',
    'a,b,c\n1,2,\n',
    'a\tb\n1,5\t"x\ty"\n',
    'naïve,漢字\né,"😀,"\n',
]

COLUMNS = {
    "integers": ["1", "-2", "+3"],
    "integers_and_missing": ["1", "", "NA", "-7"],
    "integers_and_numbers": ["1", "2.5"],
    "numbers": ["1.5", "-2e3", ".5", "3.", "1E-3", "+0.25"],
    "infinities": ["inf", "-inf", "1.0"],
    "beyond_double": ["1e400", "-1e400", "1e-400"],
    "booleans": ["True", "false", "TRUE"],
    "booleans_and_missing": ["true", "", "false"],
    "booleans_and_integers": ["true", "1"],
    "texts": ["x", "1", "2.5"],
    "texts_and_missing": ["x", "null", "n/a", "None", "y"],
    "limits": ["9223372036854775807", "-9223372036854775808"],
    "spaces": [" 1", "2 ", " 3 "],
    "large_and_number": ["92233720368547758080", "1.5"],
    "dates": ["2024-01-02", "2024-01-03"],
    "words_like_numbers": ["1e", "-", "1_000", "0x10"],
    "leading_zeros": ["007", "08"],
}


def delimiter_of(text):
    return "\t" if "\t" in text.split("\n")[0] else ","


def csv_rows(text):
    rows = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter_of(text), strict=True)
    return [row for row in rows if row]


def plain(value):
    if pandas.isna(value):
        return None
    if hasattr(value, "item"):
        value = value.item()
    return str(value) if isinstance(value, float) else value


def inferred(name, fields):
    text = "x,row\n" + "".join(f"{field},{i}\n" for i, field in enumerate(fields))
    column = pandas.read_csv(io.StringIO(text), dtype_backend="numpy_nullable")["x"]
    types = {"Int64": "integer", "Float64": "number", "boolean": "boolean"}
    return {
        "name": name,
        "text": text,
        "type": types.get(str(column.dtype), "text"),
        "values": [plain(value) for value in column],
    }


def split(n, test_size):
    parts = datasets.Dataset.from_dict({"x": range(n)}).train_test_split(test_size, seed=0)
    sizes = {name: len(part) for name, part in parts.items()}
    return {"n": n, "test_size": test_size, "train": sizes["train"], "test": sizes["test"]}


def stratified(counts, test_size):
    labels = [label for label, count in enumerate(counts) for _ in range(count)]
    train, test = train_test_split(labels, test_size=test_size, stratify=labels, random_state=0)
    sizes = [[part.count(label) for label in range(len(counts))] for part in (train, test)]
    return {"counts": counts, "test_size": test_size, "train": sizes[0], "test": sizes[1]}


def classes(values):
    table = datasets.Dataset.from_dict({"x": values}).class_encode_column("x")
    return {"values": values, "names": table.features["x"].names, "ids": table["x"][:]}


data = {
    "source": f"pandas {pandas.__version__}, datasets {datasets.__version__}",
    "csv": [{"text": t, "delimiter": delimiter_of(t), "rows": csv_rows(t)} for t in TEXTS],
    "types": [inferred(name, fields) for name, fields in COLUMNS.items()],
    "splits": [
        split(n, test_size)
        for n, test_size in [(10, 0.25), (11, 0.2), (3, 0.5), (7, 3), (100, 0.333), (5, 0.01)]
    ],
    "stratified": [
        stratified([50, 30, 21], 0.2),
        stratified([7, 6, 4], 5),
        stratified([60, 41], 0.25),
    ],
    "classes": [
        classes(["b", "a", "c", "a"]),
        classes(["é", "Z", "z", None, "a"]),
        classes([10, 9, 2, 10]),
    ],
}

with open(FOLDER / "tables.json", "w", encoding="utf-8") as file:
    file.write("{\n")
    for i, (key, value) in enumerate(data.items()):
        if isinstance(value, list):
            lines = ",\n".join("  " + json.dumps(item, ensure_ascii=False) for item in value)
            text = f"[\n{lines}\n ]"
        else:
            text = json.dumps(value)
        file.write(f' "{key}": {text}{"," if i + 1 < len(data) else ""}\n')
    file.write("}\n")
