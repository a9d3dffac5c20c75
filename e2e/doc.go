// Package e2e tests Rouse from outside: the program as users start it, as a
// child process of the test, and the clients that users have (curl, the official
// OpenAI clients for Go and JavaScript, and rouse's own commands).
//
// It refuses to know anything of the inside: what the tests see is what a person
// or a client sees. Of Rouse itself they link what a client may have too, and the
// judge of pico's answers (package engine/pico/corpus); models that they need are
// written by commands in tinygguf and genmodel. A test never
// sleeps; it asks again until the answer is the one that is to come, within a
// bound.
//
// The life of one test:
//
//  1. TestMain builds rouse and the runtime that fails on demand, once.
//  2. A script of testdata/script (or a Go test) starts its own server on a free
//     port, with a folder for sockets of its own.
//  3. It asks, kills, stops, and looks. What is answered on OpenAI's paths is judged
//     by a description of its API on the way (package openapi).
//  4. At its end the server is killed if it still runs, and no process of it may
//     be left: each of them carries the folder's name in its environment.
//
// The scripts are described in testdata/script/README.md. "go test -short ./e2e"
// runs the main ones.
package e2e
