"""Asks Rouse with MLflow's own clients and prints what each gets, a line of JSON for each.

usage: mlflow_clients.py URL ENDPOINT
"""

import json
import os
import sys

sys.path.pop(0)  # the folder of this file, where an mlflow.py is

from mlflow.deployments import get_deploy_client
from mlflow.metrics.genai.model_utils import score_model_on_payload
from mlflow.pyfunc.scoring_server.client import ScoringServerClient

url, endpoint = sys.argv[1:]
chat = {"messages": [{"role": "user", "content": "echo a b"}], "max_tokens": 8, "temperature": 0}


def told(name, ask):
    try:
        answer = ask()
    except Exception as e:
        answer = {"failed": f"{type(e).__name__}: {e}"}
    print(json.dumps({"name": name, "answer": answer}), flush=True)


def both(kind, client):
    told(kind + " predict chat", lambda: client.predict(endpoint=endpoint, inputs=chat)["choices"][0]["message"]["content"])
    told(kind + " predict default", lambda: client.predict(endpoint=endpoint, inputs={**chat, "model": "default"})["choices"][0]["message"]["content"])
    told(kind + " predict completion", lambda: client.predict(endpoint=endpoint, inputs={"prompt": "echo a b", "max_tokens": 8})["object"])
    told(kind + " predict embeddings", lambda: client.predict(endpoint=endpoint, inputs={"input": ["a", "b"]})["object"])
    told(kind + " predict nowhere", lambda: client.predict(endpoint="nowhere", inputs=chat))


gateway = get_deploy_client(url)
told("gateway list", lambda: [e.dict() for e in gateway.list_endpoints()])
told("gateway get", lambda: gateway.get_endpoint(endpoint).dict())
told("gateway get nowhere", lambda: gateway.get_endpoint("nowhere").dict())
both("gateway", gateway)
os.environ["MLFLOW_DEPLOYMENTS_TARGET"] = url
told("a judge's model", lambda: score_model_on_payload("endpoints:/" + endpoint, "echo a b", {"max_tokens": 8, "temperature": 0}))

os.environ.update(DATABRICKS_HOST=url, DATABRICKS_TOKEN="none")
databricks = get_deploy_client("databricks")
told("databricks list", lambda: [e["name"] for e in databricks.list_endpoints()])
told("databricks get", lambda: {k: databricks.get_endpoint(endpoint)[k] for k in ("name", "task", "state")})
both("databricks", databricks)
told("databricks stream", lambda: "".join(c["choices"][0]["delta"].get("content") or "" for c in databricks.predict_stream(endpoint=endpoint, inputs=chat)))

host, port = url.removeprefix("http://").split(":")
server = ScoringServerClient(host, port)
told("scoring ping", server.ping)
told("scoring version", server.get_version)
told("scoring invoke", lambda: len(server.invoke(["HEALTH_CHECK"])["predictions"]))
