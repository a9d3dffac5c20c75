// Package e2e tests Rouse from outside. It starts the program as users do, as a child process of the test. The clients
// are the users' too: curl, the official OpenAI clients for Go and JavaScript, and rouse's own commands.
//
// It knows nothing of the inside: the tests see only what a person or a client sees. Of Rouse itself they link only
// packages that a client may use, and the judge of pico's answers (package engine/pico/corpus). The command tinygguf
// writes the models that they need. A test never sleeps; it asks again until the expected answer comes or a
// time limit ends.
//
// The life of one test:
//
//  1. TestMain builds rouse and the runtime that fails on demand, once.
//  2. A script of testdata/script (or a Go test) starts its own server on a free
//     port, with a folder for sockets of its own.
//  3. It asks, kills, stops, and looks. Answers on OpenAI's paths are checked on the way against a description of its
//     API (openapi_judge_test.go).
//  4. At its end the server is killed if it still runs, and no process of it may
//     be left: each of them carries the folder's name in its environment.
//
// The scripts are described in testdata/script/README.md. "go test -short ./e2e"
// runs the main ones.
package e2e
