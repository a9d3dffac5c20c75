"""Makes the model that `mlflow models serve` answers with in the tests: mlflow-extensions' own, whose requests go to the server that $SERVER names.

usage: mlflow.py DIR      makes DIR/model
"""

import sys
from pathlib import Path

sys.path.pop(0)  # the folder of this file, which is called mlflow too

import mlflow
from mlflow_extensions.serving.wrapper import CustomServingEnginePyfuncWrapper


class Elsewhere(CustomServingEnginePyfuncWrapper):
    """Starts no engine: one runs already."""

    def __init__(self):
        self._engine = None

    def load_context(self, context):
        import os
        from types import SimpleNamespace

        import httpx

        server = os.environ["SERVER"]
        self._engine = SimpleNamespace(
            server_http_client=httpx.Client(base_url=server), oai_http_client=httpx.Client(base_url=server + "/v1"), health_check_status=lambda: {"status": "AVAILABLE"}
        )
        self._engine_config = SimpleNamespace(to_run_command=lambda *_: "none")

    def predict(self, context, model_input, params=None):
        # MLflow 3 checks calls of it by its type hints, which none fits.
        return super().predict.__wrapped__(self, context, model_input, params)


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    mlflow.pyfunc.save_model(folder / "model", python_model=Elsewhere(), pip_requirements=[])
