// Package ollama pins the real Ollama that the black-box tests run, and what it
// takes to build it: the script build in this folder does. It is a module of its
// own, so that Rouse does not depend on Ollama; the tests are in the folder above.
//
// Ollama is a Go program with llama.cpp in it, so its module is all of its source,
// but for what Go leaves out of every module: folders named "vendor". There
// llama.cpp keeps three libraries of which it includes headers (nlohmann/json, stb
// and miniaudio); the script takes them from Debian and from a Go module.
package ollama
