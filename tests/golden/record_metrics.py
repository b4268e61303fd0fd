"""Records scikit-learn's metrics for labels and scores, for tests/accel: writes metrics.json.

    python tests/golden/record_metrics.py

Scores are multiples of 1/128 without ties in a row. Labels of -100 are ignored: they are not passed
to scikit-learn. NaN is written as null.

Tested with scikit-learn 1.9.
"""

import json
import math
import pathlib
import warnings

import numpy as np
import sklearn
from sklearn import metrics

IGNORED = -100


def case(seed, rows, classes, labelled, predicted, ignored=0.0):
    """Returns labels from the classes `labelled`, and scores whose maxima are at the classes `predicted`.
    About the fraction `ignored` of the labels is IGNORED."""
    random = np.random.default_rng(seed)
    scores = np.stack([random.permutation(64)[:classes] for _ in range(rows)]) / 64
    scores[:, predicted] += 1
    labels = random.choice(labelled, rows)
    hint = random.random(rows) < 0.5
    scores[np.arange(rows)[hint], labels[hint]] += 0.25 + 1 / 128
    labels[random.random(rows) < ignored] = IGNORED
    return scores, labels


def scores_of(labels, predictions, classes):
    rows = []
    for zero_division in (0, 1, math.nan):
        for average in (None, "binary0", "binary1", "micro", "macro", "weighted"):
            options = {"labels": range(classes), "average": average}
            if average and average.startswith("binary"):
                if classes != 2:
                    continue
                options = {"average": "binary", "pos_label": int(average[-1])}
            values = metrics.precision_recall_fscore_support(
                labels, predictions, zero_division=zero_division, **options
            )[:3]
            values = np.array(values, dtype=float).reshape(3, -1).T
            rows.append({"zero_division": zero_division, "average": average, "values": values.tolist()})
    return rows


def record(scores, all_labels):
    counts = all_labels != IGNORED
    labels, kept = all_labels[counts], scores[counts]
    classes = scores.shape[1]
    predictions = kept.argmax(1)
    chances = np.exp(kept) / np.exp(kept).sum(1, keepdims=True)
    confusion = {
        str(how).lower(): metrics.confusion_matrix(
            labels, predictions, labels=range(classes), normalize=how
        ).tolist()
        for how in (None, "true", "pred", "all")
    }
    top_k = {
        str(k): metrics.top_k_accuracy_score(
            labels, kept[:, 1] if classes == 2 else kept, k=k, labels=range(classes)
        )
        for k in ([1, 2, 3] if classes > 2 else [1])
    }
    top_k["1"] = metrics.accuracy_score(labels, predictions)
    return {
        "classes": classes,
        "scores": scores.tolist(),
        "labels": all_labels.tolist(),
        "accuracy": top_k,
        "confusion": confusion,
        "log_loss": metrics.log_loss(labels, chances, labels=range(classes)),
        "precision_recall_f1": scores_of(labels, predictions, classes),
    }


def without_nan(value):
    if isinstance(value, dict):
        return {k: without_nan(v) for k, v in value.items()}
    if isinstance(value, list):
        return [without_nan(v) for v in value]
    return None if isinstance(value, float) and math.isnan(value) else value


def main():
    warnings.simplefilter("ignore")
    cases = [
        case(1, 40, 2, [0, 1], [0, 1]),
        case(2, 23, 2, [0], [0, 1]),
        case(3, 17, 2, [0, 1], [1]),
        case(4, 9, 2, [0], [0]),
        case(5, 31, 3, [0, 1, 2], [0, 1, 2], ignored=0.2),
        case(6, 50, 5, [0, 2, 3], [0, 1, 2]),
        case(7, 64, 5, [4], [0, 1, 2, 3]),
        case(8, 97, 10, list(range(10)), list(range(10)), ignored=0.1),
    ]
    text = json.dumps(
        {
            "source": f"scikit-learn {sklearn.__version__}",
            "ignored": IGNORED,
            "cases": [without_nan(record(*one)) for one in cases],
        },
        separators=(",", ":"),
    ).replace('},"', '},\n"').replace('},{', '},\n{')
    pathlib.Path(__file__).with_name("metrics.json").write_text(text + "\n")


main()
