// Package envelope is the wire format by which mlflow-extensions carries an HTTP
// request through MLflow's scoring server. Request and answer are objects, each written as a JSON
// string inside the JSON of /invocations.
//
//	request:  {"inputs": ["{\"method\": \"POST\", \"url_path\": \"/chat/completions\", …}"]}
//	answer:   {"predictions": ["{\"status_code\": 200, \"headers\": {…}, \"content\": \"…\", \"content_type\": \"text\"}"]}
//
// [ParseRequest] and [AppendResponse] are the server's side, [AppendRequest] and
// [ParseResponse] the client's. Package jsontext handles JSON's syntax.
//
// It does not check requests: a path is any text. All functions are pure; the caller owns the bytes.
package envelope
