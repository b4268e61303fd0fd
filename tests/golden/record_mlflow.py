"""Records a run of MLflow's file store, for tests/accel/tracking/mlflow_test.cpp: writes mlflow.json, a
map from the paths below the experiment's folder to the texts of the files. Numbers that differ from
run to run are replaced by 0.

With the argument FOLDER, reads the runs in the store FOLDER with MLflow's client and prints them, to
check a store that Axle has written.
"""

import json
import os
import pathlib
import re
import sys
import tempfile

os.environ["MLFLOW_ALLOW_FILE_STORE"] = "true"
import mlflow

if len(sys.argv) > 1:
    client = mlflow.MlflowClient(tracking_uri="file:" + str(pathlib.Path(sys.argv[1]).resolve()))
    for experiment in client.search_experiments():
        for run in client.search_runs([experiment.experiment_id]):
            print(experiment.name, run.info.run_name, run.info.status, run.data.params)
            for key in sorted(run.data.metrics):
                print(" ", key, [(m.step, m.value) for m in client.get_metric_history(run.info.run_id, key)])
    sys.exit()

with tempfile.TemporaryDirectory() as folder:
    client = mlflow.MlflowClient(tracking_uri="file:" + folder)
    experiment = client.create_experiment("gpt")
    run = client.create_run(experiment, run_name="first").info.run_id
    client.log_param(run, "lr", 0.1)
    client.log_param(run, "model/width", 64)
    client.log_metric(run, "loss", 0.5, step=1)
    client.log_metric(run, "loss", float("nan"), step=2)
    client.log_metric(run, "eval/accuracy", 1, step=2)
    client.set_terminated(run)
    root = pathlib.Path(folder) / experiment
    files = {}
    for path in sorted(root.rglob("*")):
        if path.is_file():
            text = path.read_text().replace(str(root), "ROOT").replace(run, "RUN")
            text = text.replace(experiment, "EXPERIMENT")
            files[str(path.relative_to(root)).replace(run, "RUN")] = re.sub(r"\b1\d{12}\b", "0", text)
pathlib.Path(__file__).with_name("mlflow.json").write_text(json.dumps(files, indent=1) + "\n")
