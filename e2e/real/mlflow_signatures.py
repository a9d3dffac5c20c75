"""Makes models of the one that mlflow.py has made, each with a signature, and serves them in one process, as `mlflow models serve` serves one.

usage: mlflow_signatures.py MODEL FOLDER          makes FOLDER/NAME of each, and a table FOLDER/one.parquet
       mlflow_signatures.py MODEL FOLDER PORT     serves each at /NAME
"""

import shutil
import sys
from pathlib import Path

sys.path.pop(0)  # the folder of this file, where an mlflow.py is

import mlflow
import numpy as np
import pandas as pd
from mlflow.models import ModelSignature, infer_signature
from mlflow.types import ColSpec, DataType, ParamSchema, ParamSpec, Schema, TensorSpec

text = DataType.string
SIGNATURES = {
    # As mlflow_extensions.databricks.deploy.ez_deploy logs its models.
    "extensions": infer_signature(model_input=["string-request"], model_output=["string-response"]),
    "params": ModelSignature(
        Schema([ColSpec(text)]),
        params=ParamSchema([ParamSpec("temperature", DataType.double, 0.5), ParamSpec("stop", text, ["x"], shape=(-1,))]),
    ),
    "column": ModelSignature(Schema([ColSpec(text, "a")])),
    "optional": ModelSignature(Schema([ColSpec(text, "a"), ColSpec(DataType.long, "b", required=False)])),
    "long": ModelSignature(Schema([ColSpec(DataType.long, "a")])),
    "tensor": ModelSignature(Schema([TensorSpec(np.dtype(str), (-1,))])),
}

if __name__ == "__main__":
    model, folder, *port = sys.argv[1:]
    if not port:
        for name, signature in SIGNATURES.items():
            shutil.copytree(model, Path(folder) / name)
            mlflow.models.set_signature(str(Path(folder) / name), signature)
        pd.DataFrame({"a": ["HEALTH_CHECK"]}).to_parquet(Path(folder) / "one.parquet")
        sys.exit()

    import uvicorn
    from fastapi import FastAPI
    from mlflow.pyfunc import scoring_server

    app = FastAPI()
    for name in SIGNATURES:
        app.mount("/" + name, scoring_server.init(mlflow.pyfunc.load_model(str(Path(folder) / name))))
    app.get("/ping")(lambda: "")
    uvicorn.run(app, host="127.0.0.1", port=int(port[0]), log_level="warning")
