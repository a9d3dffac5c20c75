// Package ollama pins the real Ollama that the black-box tests run; the script build in this folder builds it. It is
// a module of its own, so that Rouse does not depend on Ollama.
//
// Ollama's module is all of its source, but for folders named "vendor". There llama.cpp keeps three libraries of
// which it includes headers (nlohmann/json, stb and miniaudio); the script takes them from Debian and from a Go
// module.
package ollama
