// Package envelope is the wire format by which mlflow-extensions carries an HTTP
// request through MLflow's scoring server: both are objects, written as a JSON
// string each, inside the JSON of /invocations.
//
//	request:  {"inputs": ["{\"method\": \"POST\", \"url_path\": \"/chat/completions\", …}"]}
//	answer:   {"predictions": ["{\"status_code\": 200, \"headers\": {…}, \"content\": \"…\", \"content_type\": \"text\"}"]}
//
// [ParseRequest] and [AppendResponse] are the server's side, [AppendRequest] and
// [ParseResponse] the client's. JSON's syntax is jsontext's to know.
//
// It does not judge requests: a path is text to it. All functions
// are pure; the caller owns the bytes.
package envelope
